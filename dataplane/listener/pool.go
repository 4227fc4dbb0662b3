package listener

// Pool hands out buffers in size classes.
type Pool struct{}

// NewPool makes an empty pool.
func NewPool() *Pool { return &Pool{} }
