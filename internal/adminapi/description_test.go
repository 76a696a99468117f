package adminapi

import (
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
)

func TestTheDescriptionIsValidAndSoAreItsExamples(t *testing.T) {
	t.Parallel()
	description, err := readDescription()
	if err != nil {
		t.Fatal(err)
	}
	if err := description.Validate(t.Context()); err != nil {
		t.Error(err)
	}
	for path, item := range description.Paths.Map() {
		for method, o := range item.Operations() {
			if o.OperationID == "" || o.Summary == "" || len(o.Tags) != 1 {
				t.Errorf("%s %s lacks an operationId, a summary or its one tag", method, path)
			}
			if o.RequestBody == nil {
				continue
			}
			for mediaType, content := range o.RequestBody.Value.Content {
				switch {
				case content.Example == nil:
					t.Errorf("%s has no example of its body", o.OperationID)
				case mediaType == jsonType:
					for _, wrong := range mismatches(content.Schema.Value, content.Example) {
						t.Errorf("the example of %s is wrong at %s: %s", o.OperationID, wrong.Pointer, wrong.Detail)
					}
				}
			}
		}
	}
	for name, schema := range description.Components.Schemas {
		if schema.Value.Example != nil {
			for _, wrong := range mismatches(schema.Value, schema.Value.Example) {
				t.Errorf("the example of %s is wrong at %s: %s", name, wrong.Pointer, wrong.Detail)
			}
		}
	}
}

func TestRoutesAndDescriptionAreTheSame(t *testing.T) {
	t.Parallel()
	description, err := readDescription()
	if err != nil {
		t.Fatal(err)
	}
	described := map[string]string{}
	people := &openapi3.SecurityRequirements{{"session": {}}}
	for path, item := range description.Paths.Map() {
		for method, o := range item.Operations() {
			if !slices.Contains(o.Tags, "check") { // those are checkapi's
				described[method+" "+path] = fmt.Sprint(o.Extensions["x-least-role"])
				isForPeople := o.Extensions["x-permission"] == nil && described[method+" "+path] != "anyone" &&
					described[method+" "+path] != "caller"
				if isForPeople != reflect.DeepEqual(o.Security, people) {
					t.Errorf("%s %s is for people: %t, but its security is %v", method, path, isForPeople, o.Security)
				}
			}
		}
	}
	served := map[string]string{}
	for _, r := range (&surface{}).routes(&openapi.ServerInterfaceWrapper{}) {
		served[r.method+" "+r.path] = string(r.least)
	}
	for _, operation := range slices.Sorted(maps.Keys(described)) {
		if served[operation] != described[operation] {
			t.Errorf("%s is for %s in openapi.yaml and for %q in routes.go", operation, described[operation],
				served[operation])
		}
	}
	for operation := range served {
		if described[operation] == "" {
			t.Errorf("%s is not in openapi.yaml", operation)
		}
	}
}

// TestAViewersOperationsAreReads: a viewer's operations change nothing, as suspended tenants rely on. Owners alone may
// read the export of a user's data.
func TestAViewersOperationsAreReads(t *testing.T) {
	t.Parallel()
	// which take their question as a body, or write a file for the caller
	reads := []string{"/simulate", "/effect", "/explain", "/try", "/alerts/preview", "/export"}
	for _, r := range (&surface{}).routes(&openapi.ServerInterfaceWrapper{}) {
		isRead := r.method == http.MethodGet ||
			slices.ContainsFunc(reads, func(s string) bool { return strings.HasSuffix(r.path, s) })
		isAboutPeople := strings.HasSuffix(r.path, "/users/{user_id}/data") ||
			strings.HasSuffix(r.path, "/erasures/{receipt_id}") || strings.HasSuffix(r.path, "/security-log")
		isRead = isRead && !isAboutPeople
		if strings.Contains(r.path, "{tenant}") && isRead != (r.least == aViewer) {
			t.Errorf("%s %s is for %s", r.method, r.path, r.least)
		}
	}
}

func TestChangesNeedAVersion(t *testing.T) {
	t.Parallel()
	// Operations that end what cannot change meanwhile, have their condition in the body or replace any version.
	without := []string{
		"signOut", "signOutEverywhere", "endAccountSessions", "endSession", "changePassword",
		"revokeInvitation", "turnSecondFactorOff", "deleteParkedJob", "putRule",
	}
	description, err := readDescription()
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range description.Paths.Map() {
		for method, o := range item.Operations() {
			if method == http.MethodGet || method == http.MethodPost || slices.Contains(without, o.OperationID) {
				continue
			}
			if o.Parameters.GetByInAndName("header", "If-Match") == nil || o.Responses.Value("412") == nil ||
				o.Responses.Value("428") == nil {
				t.Errorf("%s takes no If-Match, or does not answer 412 and 428", o.OperationID)
			}
		}
	}
}

func TestConditionsAreReadStrictly(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{`"3"`: 3, `"0"`: 0, `*`: -1} {
		if got, err := expected(text); err != nil || int64(got) != want {
			t.Errorf("%s is read as %d, %v", text, got, err)
		}
	}
	for _, text := range []string{
		``, `3`, `"3`, `3"`, `W/"3"`, `"3", "4"`, `"-1"`, `"x"`, `"99999999999999999999"`,
		`**`,
	} {
		if got, err := expected(text); err == nil {
			t.Errorf("%s is read as %d", text, got)
		}
	}
}

func TestEveryListHasACursorOrSaysWhyNot(t *testing.T) {
	t.Parallel()
	description, err := readDescription()
	if err != nil {
		t.Fatal(err)
	}
	lists := 0
	for _, item := range description.Paths.Map() {
		o := item.Get
		if o == nil || o.Responses.Value("200") == nil {
			continue
		}
		content := o.Responses.Value("200").Value.Content["application/json"]
		if content == nil || content.Schema == nil || content.Schema.Value.Properties["items"] == nil {
			continue
		}
		lists++
		pages := o.Parameters.GetByInAndName("query", "cursor") != nil
		if answers := content.Schema.Value.Properties["next_cursor"] != nil; answers != pages {
			t.Errorf("%s takes a cursor: %v, and answers one: %v", o.OperationID, pages, answers)
		}
		if pages == strings.Contains(o.Description, "No cursor: ") {
			t.Errorf("%s has a cursor (%v) and says %q", o.OperationID, pages, o.Description)
		}
	}
	if lists < 30 {
		t.Errorf("%d operations answer lists", lists)
	}
}

func TestOperationsForPeopleAloneTakeNoKeys(t *testing.T) {
	t.Parallel()
	description, err := readDescription()
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range description.Paths.Map() {
		for _, o := range item.Operations() {
			security := description.Security
			if o.Security != nil {
				security = *o.Security
			}
			takesKeys := slices.ContainsFunc(security, func(one openapi3.SecurityRequirement) bool {
				_, ok := one["apiKey"]
				return ok
			})
			names := o.Extensions["x-permission"] != nil || slices.Contains(o.Tags, "check")
			if takesKeys != names {
				t.Errorf("%s takes API keys: %v, and names a permission: %v", o.OperationID, takesKeys, names)
			}
		}
	}
}
