package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
)

// login is a service account that logs in with tokens (OAUTHBEARER).
type login struct{ url, id, secret string }

// mechanism fetches a token for each connection and each time that one's session has to be renewed.
func (l login) mechanism() sasl.Mechanism {
	return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		form := url.Values{"grant_type": {"client_credentials"}}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url, strings.NewReader(form.Encode()))
		if err != nil {
			return oauth.Auth{}, err
		}
		req.SetBasicAuth(url.QueryEscape(l.id), url.QueryEscape(l.secret)) // RFC 6749, 2.3.1
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return oauth.Auth{}, err
		}
		defer resp.Body.Close()
		var token struct {
			Access string `json:"access_token"`
		}
		if resp.StatusCode != http.StatusOK {
			return oauth.Auth{}, fmt.Errorf("fetch a token: %s", resp.Status)
		}
		if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&token); err != nil {
			return oauth.Auth{}, fmt.Errorf("fetch a token: %w", err)
		}
		return oauth.Auth{Token: token.Access}, nil
	})
}
