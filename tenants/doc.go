// Package tenants holds what both planes must agree on about tenants: ids,
// plans and their limits, principal names and naming rules. It is a leaf: it
// imports the standard library only, so that the brokers do not grow with the
// control plane.
package tenants
