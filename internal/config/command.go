package config

// Command is a binary with, if it has several, its command.
type Command string

// The commands.
const (
	API                   Command = "api"
	AdminServe            Command = "admin serve"
	AdminMigrate          Command = "admin migrate"
	AdminCreateAdmin      Command = "admin create-admin"
	AdminSetPassword      Command = "admin set-password"
	AdminRemoveFactor     Command = "admin remove-factor"
	AdminSignInLink       Command = "admin sign-in-link"
	AdminCreateTenant     Command = "admin create-tenant"
	AdminCreateKey        Command = "admin create-key"
	AdminCreateServiceKey Command = "admin create-service-key"
	AdminRemoveTenant     Command = "admin remove-tenant"
	AdminRestoreTenant    Command = "admin restore-tenant"
	AdminEnforcement      Command = "admin set-enforcement"
	AdminApply            Command = "admin apply"
	AdminExport           Command = "admin export"
	AdminImportEnvoy      Command = "admin import-envoy"
	AdminReplay           Command = "admin replay"
	SluiceDev             Command = "sluice dev"
)

// Serves reports whether the command runs until it is stopped.
func (c Command) Serves() bool { return c == API || c == AdminServe || c == SluiceDev }

var summaries = map[Command]string{
	API:               "Answer checks.",
	AdminServe:        "Answer the admin API and show the web UI.",
	AdminMigrate:      "Bring the database schema up to this binary's.",
	AdminCreateAdmin:  "Make an account a platform admin, with a new password that it asks for.",
	AdminSetPassword:  "Give an account a new password that it asks for, and sign it out everywhere.",
	AdminRemoveFactor: "Remove the lost second factor of an account, and sign it out everywhere.",
	AdminSignInLink:   "Print a link that signs an account in, once, within 15 minutes.",
	AdminCreateTenant: "Create a tenant.",
	AdminCreateKey:    "Create an API key of a tenant and print it. It is shown only this once.",
	AdminCreateServiceKey: "Create a service key, which acts in every tenant, and print it. It is shown only this " +
		"once.",
	AdminRemoveTenant:  "Suspend and remove a tenant. It can be restored for a grace period, and is erased then.",
	AdminRestoreTenant: "Restore a removed tenant, which stays suspended.",
	AdminEnforcement:   "Put a tenant in shadow, where its rules deny nothing, or back to on.",
	AdminApply:         "Make a tenant's plans, rules and overrides those of a file.",
	AdminExport:        "Print a tenant's plans, rules and overrides as such a file.",
	AdminImportEnvoy: "Make a configuration of envoyproxy/ratelimit, in files or folders, rules of a " +
		"tenant.",
	AdminReplay: "Show what the rules of a file would have decided on recorded checks.",
	SluiceDev:   "Run everything in one process, with a private database, on loopback only.",
}

var (
	everyCommand = []Command{
		API, AdminServe, AdminMigrate, AdminCreateAdmin, AdminSetPassword, AdminRemoveFactor, AdminSignInLink,
		AdminCreateTenant,
		AdminCreateKey, AdminCreateServiceKey, AdminRemoveTenant, AdminRestoreTenant, AdminEnforcement, AdminApply,
		AdminExport, AdminImportEnvoy,
		AdminReplay, SluiceDev,
	}
	servers  = []Command{API, AdminServe, SluiceDev}
	deciders = []Command{API, SluiceDev}
	keepers  = []Command{AdminServe, SluiceDev}
)
