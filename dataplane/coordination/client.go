package coordination

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"penstock/dataplane/coordination/zksession"
)

// Errors that callers tell apart; they are the zk package's own values.
var (
	ErrNoNode     = zk.ErrNoNode
	ErrNodeExists = zk.ErrNodeExists
	ErrBadVersion = zk.ErrBadVersion
	ErrNotEmpty   = zk.ErrNotEmpty
	ErrNoAuth     = zk.ErrNoAuth
	ErrExpired    = zk.ErrSessionExpired
)

// ErrClosed is returned by every call after Close.
var ErrClosed = errors.New("coordination: client closed")

// Stat is a znode's metadata.
type Stat = zk.Stat

// Config says how to reach ZooKeeper. Connect is required.
type Config struct {
	// Connect is zookeeper.connect: host:port[,host:port...][/chroot]. A chroot
	// that does not exist is created.
	Connect string

	// SessionTimeout is zookeeper.session.timeout.ms, default 18 s. The server
	// may clamp it to 2..20 of its ticks.
	SessionTimeout time.Duration

	// Digest is "user:password" for ZooKeeper's digest scheme; empty: no
	// authentication.
	Digest string

	// SetACL is zookeeper.set.acl: znodes are created such that only the digest
	// user may change them (all but the sensitive ones stay world-readable, as
	// with Kafka). Needs Digest.
	SetACL bool

	// Box, if not nil, always holds the session that this client has, for a parent
	// process that ends it once this process is dead.
	Box *zksession.Box

	Logger *slog.Logger // nil discards
}

// Client is a ZooKeeper client bound to one cluster's chroot. All paths given
// to it and all that it gives start at the chroot. All methods may be called
// from any goroutine; blocking ones end with ctx.
type Client struct {
	cfg     Config
	log     *slog.Logger
	servers []string
	chroot  string // "" or "/a/b"

	watches watches

	hookMu    sync.Mutex // held while hooks run, so that adding and running are ordered
	onSession []func(ctx context.Context) error
	onExpired []func()

	mu      sync.Mutex
	cur     *session      // nil between sessions
	changed chan struct{} // closed when cur becomes another session
	past    []int64       // ids of this client's earlier sessions
	closed  bool

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// session is one ZooKeeper session with the connection that belongs to it.
type session struct {
	conn    *zk.Conn
	id      int64
	expired chan struct{} // closed when the server has ended the session
	once    sync.Once
	up      chan struct{} // closed at the first StateHasSession
	upOnce  sync.Once
	done    chan struct{} // closed when the library's goroutines have ended
}

// Connect makes the first session, waiting for it until ctx ends, and sees to
// it that the chroot exists.
func Connect(ctx context.Context, cfg Config) (*Client, error) {
	servers, chroot, err := ParseConnect(cfg.Connect)
	if err != nil {
		return nil, err
	}
	if cfg.SessionTimeout <= 0 {
		cfg.SessionTimeout = 18 * time.Second
	}
	if cfg.SetACL && cfg.Digest == "" {
		return nil, errors.New("coordination: zookeeper.set.acl needs digest credentials")
	}
	if cfg.Digest != "" && !strings.Contains(cfg.Digest, ":") {
		return nil, errors.New("coordination: digest credentials must be user:password")
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &Client{cfg: cfg, log: log, servers: servers, chroot: chroot, changed: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.watches.init()
	s, err := c.dial(ctx)
	if err != nil {
		c.cancel()
		return nil, fmt.Errorf("coordination: connect to %s: %w", cfg.Connect, err)
	}
	c.cur = s
	if err := c.ensureChroot(ctx); err != nil {
		c.cancel()
		s.close()
		return nil, fmt.Errorf("coordination: create chroot %s: %w", chroot, err)
	}
	c.wg.Add(2)
	go c.run(s)
	go c.dispatch()
	return c, nil
}

// ParseConnect splits a connect string into its servers and its chroot ("" when
// there is none).
func ParseConnect(connect string) (servers []string, chroot string, err error) {
	hosts, rest, found := strings.Cut(connect, "/")
	if found && rest != "" {
		chroot = "/" + strings.TrimSuffix(rest, "/")
		if strings.Contains(chroot, "//") {
			return nil, "", fmt.Errorf("coordination: bad chroot in %q", connect)
		}
	}
	for h := range strings.SplitSeq(hosts, ",") {
		if h = strings.TrimSpace(h); h != "" {
			servers = append(servers, h)
		}
	}
	if len(servers) == 0 {
		return nil, "", fmt.Errorf("coordination: no server in %q", connect)
	}
	return zk.FormatServers(servers), chroot, nil
}

// Close ends the session at the server, so that its ephemeral znodes go at
// once, and waits for every goroutine of the client.
func (c *Client) Close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	s := c.cur
	c.mu.Unlock()
	c.cancel()
	if s != nil {
		s.close()
	}
	c.wg.Wait()
}

// OnSession adds a hook that runs after each further session has been made, in
// the order of adding, before any watch is woken. It does not run for the
// session that exists now. A hook that fails is logged and run again with its
// successors after a pause, as long as the session lives.
func (c *Client) OnSession(hook func(ctx context.Context) error) {
	c.hookMu.Lock()
	defer c.hookMu.Unlock()
	c.onSession = append(c.onSession, hook)
}

// OnExpired adds a hook that runs at once when the session has been lost. It
// must not block.
func (c *Client) OnExpired(hook func()) {
	c.hookMu.Lock()
	defer c.hookMu.Unlock()
	c.onExpired = append(c.onExpired, hook)
}

// SessionID is the current session's id, 0 between sessions.
func (c *Client) SessionID() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cur == nil {
		return 0
	}
	return c.cur.id
}

// dial makes a session and waits until the server has granted it.
func (c *Client) dial(ctx context.Context) (*session, error) {
	s := &session{expired: make(chan struct{}), up: make(chan struct{}), done: make(chan struct{})}
	ready := make(chan struct{}) // the callback must not run before s.conn is set
	conn, events, err := zk.Connect(c.servers, c.cfg.SessionTimeout,
		zk.WithLogger(zkLogger{c.log}), zk.WithLogInfo(false),
		zk.WithHostProvider(&hosts{HostProvider: zk.NewDNSHostProvider()}), zk.WithDialer(new(zxids).dialer(dialer(c.cfg.SessionTimeout, c.granted))),
		zk.WithEventCallback(func(ev zk.Event) {
			<-ready
			c.event(s, ev)
		}))
	if err != nil {
		return nil, err
	}
	s.conn = conn
	close(ready)
	go func() {
		for range events { // the callback has seen them already
		}
		close(s.done)
	}()
	select {
	case <-s.up:
	case <-ctx.Done():
		s.close()
		return nil, ctx.Err()
	case <-c.ctx.Done():
		s.close()
		return nil, ErrClosed
	}
	s.id = conn.SessionID()
	for c.cfg.Digest != "" {
		_, err := wait(ctx, func() (struct{}, error) { return struct{}{}, conn.AddAuth("digest", []byte(c.cfg.Digest)) })
		if err == nil {
			break
		}
		// The connection may be lost at any time; the session may go on.
		if s.over() || !pause(ctx, 50*time.Millisecond) {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

// granted is called with each server's word that a session is ours, before anything
// can be done under it.
func (c *Client) granted(server string, g zksession.Grant) {
	err := c.cfg.Box.Put(zksession.Session{
		ID: g.ID, Password: g.Password, Timeout: g.Timeout,
		Server: server, Servers: c.servers, Digest: c.cfg.Digest,
	})
	if err != nil {
		c.log.Error("the supervisor cannot be told of the zookeeper session; should this broker die, it will be missed only when that times out", "err", err)
	}
}

// event is called by the library's goroutines and must not block.
func (c *Client) event(s *session, ev zk.Event) {
	switch {
	case ev.Type == zk.EventSession && ev.State == zk.StateHasSession:
		s.upOnce.Do(func() { close(s.up) })
	case ev.Type == zk.EventSession && ev.State == zk.StateExpired:
		// The library would go on with a new session on this connection and
		// carry out under it what was meant for the old one. Closing it here,
		// while its loop waits for us, is what keeps the two apart. This
		// blocks only that loop.
		s.once.Do(func() { close(s.expired) })
		s.conn.Close()
	case ev.Type == zk.EventNodeCreated, ev.Type == zk.EventNodeDeleted,
		ev.Type == zk.EventNodeDataChanged, ev.Type == zk.EventNodeChildrenChanged:
		c.watches.fire(ev.Type, c.local(ev.Path))
	}
}

func (s *session) close() {
	s.conn.Close()
	<-s.done
}

func (s *session) over() bool {
	select {
	case <-s.expired:
		return true
	default:
		return false
	}
}

// run replaces sessions that have expired.
func (c *Client) run(s *session) {
	defer c.wg.Done()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-s.expired:
		}
		c.log.Warn("zookeeper session expired", "session", fmt.Sprintf("%#x", s.id))
		c.mu.Lock()
		c.cur = nil
		c.past = append(c.past, s.id)
		if n := len(c.past) - 64; n > 0 {
			c.past = slices.Delete(c.past, 0, n)
		}
		c.mu.Unlock()
		c.hookMu.Lock()
		expired := slices.Clone(c.onExpired)
		c.hookMu.Unlock()
		for _, h := range expired {
			h()
		}
		old := s
		c.wg.Add(1)
		go func() { defer c.wg.Done(); <-old.done }()
		for s = nil; s == nil; {
			next, err := c.dial(c.ctx)
			if err != nil {
				if c.ctx.Err() != nil {
					return
				}
				c.log.Warn("no new zookeeper session", "err", err)
				if !pause(c.ctx, time.Second) {
					return
				}
				continue
			}
			s = next
		}
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			s.close()
			return
		}
		c.cur = s
		close(c.changed)
		c.changed = make(chan struct{})
		c.mu.Unlock()
		c.log.Info("new zookeeper session", "session", fmt.Sprintf("%#x", s.id))
		c.runHooks(s)
		c.watches.fireAll()
	}
}

// runHooks runs the session hooks until each has succeeded or the session ends.
func (c *Client) runHooks(s *session) {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {})
	defer stop()
	c.wg.Add(1)
	go func() {
		defer c.wg.Done()
		select {
		case <-s.expired:
			cancel()
		case <-ctx.Done():
		}
	}()
	c.hookMu.Lock()
	hooks := slices.Clone(c.onSession)
	c.hookMu.Unlock()
	for _, h := range hooks {
		for ctx.Err() == nil {
			err := h(ctx)
			if err == nil {
				break
			}
			c.log.Error("hook for a new zookeeper session failed", "err", err)
			pause(ctx, 500*time.Millisecond)
		}
	}
}
