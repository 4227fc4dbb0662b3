package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Token is an access token and when it ends.
type Token struct {
	AccessToken string
	ExpiresAt   time.Time
}

// TokenError is a refusal of the token endpoint (RFC 6749 section 5.2).
type TokenError struct {
	Status      int
	Code        string // such as invalid_client
	Description string
}

func (e *TokenError) Error() string {
	return fmt.Sprintf("token endpoint: %s (%d): %s", e.Code, e.Status, e.Description)
}

// FetchToken gets one token by the client_credentials grant. scope names the
// cluster and may be empty where the account belongs to one.
func FetchToken(ctx context.Context, hc *http.Client, tokenURL, id, secret, scope string) (Token, error) {
	if hc == nil {
		hc = http.DefaultClient
	}
	form := url.Values{"grant_type": {"client_credentials"}}
	if scope != "" {
		form.Set("scope", scope)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, tokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return Token{}, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(url.QueryEscape(id), url.QueryEscape(secret)) // RFC 6749 section 2.3.1
	asked := time.Now()
	res, err := hc.Do(req)
	if err != nil {
		return Token{}, fmt.Errorf("token endpoint: %w", err)
	}
	defer res.Body.Close()
	var body struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"`
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, 1<<20)).Decode(&body); err != nil && res.StatusCode == http.StatusOK {
		return Token{}, fmt.Errorf("token endpoint: answer: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return Token{}, &TokenError{Status: res.StatusCode, Code: body.Error, Description: body.Description}
	}
	return Token{AccessToken: body.AccessToken, ExpiresAt: asked.Add(time.Duration(body.ExpiresIn) * time.Second)}, nil
}

// bearer gives the cached token, or a new one when less than a tenth of a
// minute is left.
func (c *Client) bearer(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock() // one fetch for all who wait
	if time.Until(c.token.ExpiresAt) > 6*time.Second {
		return c.token.AccessToken, nil
	}
	t, err := FetchToken(ctx, c.cfg.HTTP, c.cfg.TokenURL, c.cfg.ClientID, c.cfg.ClientSecret, "")
	if err != nil {
		return "", err
	}
	c.token = t
	return t.AccessToken, nil
}

func (c *Client) dropToken(used string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token.AccessToken == used {
		c.token = Token{}
	}
}
