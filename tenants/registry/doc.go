// Package registry keeps plans, tenants, their members and accounts, service
// accounts and secrets in Postgres, and opens the database for the rest of the
// control plane.
//
// Tenants are separated twice: each function takes the tenant and names it in
// its statement, and the transaction runs under a role for which row-level
// security lets only that tenant's rows exist (DB.AsTenant). Functions that
// look across tenants take the worker's transaction (DB.AsWorker): operators'
// calls and the check of a client's secret, which comes before a tenant is
// known.
package registry
