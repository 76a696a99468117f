// Package adminapi is the HTTP surface of the control plane: everything under /api/v1, which people use by
// way of the web UI and automation directly, and the process's health. api/openapi.yaml describes it and
// is where its types come from; the routes, each with who may call it, are on one page in routes.go.
package adminapi
