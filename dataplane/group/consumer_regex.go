package group

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// The bounds of an expression: of its length in bytes and of its compiled form. Matching
// takes time in proportion to the latter and to the topics' names, and to nothing else.
const (
	maxRegexBytes        = 8 << 10
	maxRegexInstructions = 32 << 10
)

// minRefresh is the least time between two resolutions of a group's expressions for the
// sake of new topics.
const minRefresh = 10 * time.Second

// resolution is what an expression was found to match.
type resolution struct {
	regex  string
	result *resolved
	in     Topics
}

// compileTopicRegex compiles an expression that has to match a topic's whole name. The
// syntax is RE2's, as in Kafka.
func compileTopicRegex(re string) (*regexp.Regexp, *refusal) {
	if len(re) > maxRegexBytes {
		return nil, refuse(kerr.InvalidRegularExpression, "SubscribedTopicRegex has %d bytes; at most %d are taken", len(re), maxRegexBytes)
	}
	tree, err := syntax.Parse(re, syntax.Perl)
	if err == nil {
		var prog *syntax.Prog
		if prog, err = syntax.Compile(tree.Simplify()); err == nil && len(prog.Inst) > maxRegexInstructions {
			return nil, refuse(kerr.InvalidRegularExpression, "SubscribedTopicRegex is too large when compiled")
		}
	}
	var compiled *regexp.Regexp
	if err == nil {
		compiled, err = regexp.Compile(`\A(?:` + re + `)\z`)
	}
	if err != nil {
		return nil, refuse(kerr.InvalidRegularExpression, "SubscribedTopicRegex `%s` is not a valid regular expression: %v.", re, err)
	}
	return compiled, nil
}

// match lists the topics that the expression matches and that may be described.
func match(re *regexp.Regexp, topics Topics, may func(string) bool) []string {
	var found []string
	for name := range topics.Names() {
		if re.MatchString(name) && may(name) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

// mustResolve says whether the heartbeat brings an expression that the group does not
// know.
func (g *group) mustResolve(b *beat) bool {
	if b.regex == nil || *b.regex == "" || b.found != nil && b.found.regex == *b.regex {
		return false
	}
	return g.consumer == nil || g.consumer.regexes[*b.regex] == nil
}

// resolveLater has resolveFor run on a goroutine of its own.
func (c *Coordinator) resolveLater(b *beat) {
	select {
	case <-c.shards.Stopping():
		b.refuse(&refusal{err: kerr.NotCoordinator})
	default:
		c.shards.Spawn(func() { c.resolveFor(b) })
	}
}

// resolveFor looks up what the heartbeat's expression matches and goes on with it. Only
// one resolution runs at a time, whatever clients ask for.
func (c *Coordinator) resolveFor(b *beat) {
	re, r := compileTopicRegex(*b.regex)
	if r != nil {
		_ = c.with(b.group, false, func(g *group, fx *effects) {
			if g != nil {
				g.forgetIfIdle(fx)
			}
		})
		b.refuse(r)
		return
	}
	select {
	case c.resolving <- struct{}{}:
	case <-c.shards.Stopping():
		b.refuse(&refusal{err: kerr.NotCoordinator})
		return
	}
	b.found = &resolution{regex: *b.regex, result: &resolved{at: time.Now().UnixMilli()}, in: c.cfg.Topics()}
	if b.found.in != nil {
		b.found.result.topics = match(re, b.found.in, b.mayTopic)
	}
	<-c.resolving
	c.beat(b)
}

// maybeRefresh has the group's expressions resolved again in the background, if there may
// be other topics than last time or some time has gone by: rights may have changed. They
// are looked up with the rights of the member that the heartbeat is of, as in Kafka.
func (g *group) maybeRefresh(fx *effects, b *beat) {
	cg, c := g.consumer, g.c
	topics := c.cfg.Topics()
	if b.found != nil && len(cg.matched) == 1 {
		cg.refreshed, cg.matchedIn = time.Now(), b.found.in
	}
	since := time.Since(cg.refreshed)
	if len(cg.matched) == 0 || cg.refreshing || topics == nil ||
		!(since >= minRefresh && topics != cg.matchedIn || since >= c.cfg.ConsumerRegexRefresh) {
		return
	}
	cg.refreshing, cg.refreshed, cg.matchedIn = true, time.Now(), topics
	var all []string
	for re := range cg.matched {
		all = append(all, re)
	}
	may := b.mayTopic
	refresh := func() {
		select {
		case c.resolving <- struct{}{}:
		case <-c.shards.Stopping():
			return
		}
		found := make(map[string][]string)
		for _, s := range all {
			if re, r := compileTopicRegex(s); r == nil { // one that a Kafka took may be none for us
				found[s] = match(re, topics, may)
			}
		}
		<-c.resolving
		g.do(func(fx *effects) { g.refreshWith(fx, cg, found) })
	}
	fx.call(func() { c.shards.Spawn(refresh) })
}

// refreshWith takes over what the expressions match now.
func (g *group) refreshWith(fx *effects, cg *consumerGroup, found map[string][]string) {
	if g.consumer != cg || g.state == stateDead {
		return
	}
	cg.refreshing = false
	if g.deleting {
		return
	}
	ch := cg.begin()
	changed := false
	for re, topics := range found {
		if old := cg.regexes[re]; cg.matched[re] > 0 && (old == nil || !slices.Equal(old.topics, topics)) {
			g.setRegex(ch, re, &resolved{topics: topics, at: time.Now().UnixMilli()})
			changed = true
		}
	}
	g.bump(ch, changed)
	g.flush(fx)
}
