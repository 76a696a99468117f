package adminapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/sluicegate/sluice/api"
	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
)

var (
	//go:embed reference.html
	referenceHTML string
	//go:embed reference.css
	referenceCSS string
)

// GetDescription handles GET /api/v1/openapi.yaml.
func (s *surface) GetDescription(context.Context, openapi.GetDescriptionRequestObject) (openapi.GetDescriptionResponseObject, error) {
	return openapi.GetDescription200ApplicationyamlResponse{
		Body: bytes.NewReader(api.Description), ContentLength: int64(len(api.Description)),
	}, nil
}

// GetReference handles GET /api/v1/docs.
func (s *surface) GetReference(context.Context, openapi.GetReferenceRequestObject) (openapi.GetReferenceResponseObject, error) {
	return referencePage(s.reference), nil
}

type referencePage []byte

// VisitGetReferenceResponse lets the page have its own style, and nothing else.
func (p referencePage) VisitGetReferenceResponse(w http.ResponseWriter) error {
	sum := sha256.Sum256([]byte(referenceCSS))
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+
		"'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	_, err := w.Write(p)
	return err
}

// The page in words: groups of operations, and the schemas that they name.
type (
	referenceContent struct {
		Style   template.CSS
		Title   string
		About   []string
		Groups  []referenceGroup
		Schemas []referenceSchema
	}
	referenceGroup struct {
		Name, About string
		Operations  []referenceOperation
	}
	referenceOperation struct {
		ID, Method, Path, Summary, Role string
		About                           []string
		Parameters                      []referenceField
		Body                            *referenceBody
		Answers                         []referenceAnswer
	}
	referenceBody struct {
		MediaType, Schema, Example string
	}
	referenceAnswer struct{ Status, About, Schema string }
	referenceSchema struct {
		Name, About, Type, Example string
		Fields                     []referenceField
	}
	referenceField struct {
		Name, Type, Schema, About string
		IsRequired                bool
	}
)

// newReference writes the reference page.
func newReference(description *openapi3.T) ([]byte, error) {
	content := referenceContent{
		Style: template.CSS(referenceCSS), //nolint:gosec // it is ours, and the page's policy names its hash
		Title: description.Info.Title,
		About: paragraphs(description.Info.Description),
	}
	for _, tag := range description.Tags {
		group := referenceGroup{Name: tag.Name, About: tag.Description}
		for _, path := range description.Paths.InMatchingOrder() {
			item := description.Paths.Value(path)
			for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
				if o := item.GetOperation(method); o != nil && slices.Contains(o.Tags, tag.Name) {
					group.Operations = append(group.Operations, showOperation(method, path, item, o))
				}
			}
		}
		slices.SortStableFunc(group.Operations, func(a, b referenceOperation) int { return strings.Compare(a.Path, b.Path) })
		content.Groups = append(content.Groups, group)
	}
	for name, schema := range description.Components.Schemas {
		content.Schemas = append(content.Schemas, showSchema(name, schema.Value))
	}
	slices.SortFunc(content.Schemas, func(a, b referenceSchema) int { return strings.Compare(a.Name, b.Name) })
	page, err := template.New("reference").Parse(referenceHTML)
	if err != nil {
		return nil, fmt.Errorf("read the reference page: %w", err)
	}
	var out bytes.Buffer
	if err := page.Execute(&out, content); err != nil {
		return nil, fmt.Errorf("write the reference page: %w", err)
	}
	return out.Bytes(), nil
}

func showOperation(method, path string, item *openapi3.PathItem, o *openapi3.Operation) referenceOperation {
	shown := referenceOperation{ID: o.OperationID, Method: method, Path: path, Summary: o.Summary, About: paragraphs(o.Description)}
	shown.Role, _ = o.Extensions["x-least-role"].(string)
	for _, parameter := range slices.Concat(item.Parameters, o.Parameters) {
		p := parameter.Value
		field := showField(p.Name, p.Schema, p.Required)
		field.About, field.Type = p.Description, p.In+", "+field.Type
		shown.Parameters = append(shown.Parameters, field)
	}
	if o.RequestBody != nil {
		for mediaType, content := range o.RequestBody.Value.Content {
			shown.Body = &referenceBody{mediaType, nameOf(content.Schema), example(content.Example)}
		}
	}
	for _, status := range o.Responses.Keys() {
		answer := referenceAnswer{Status: status, About: valueOf(o.Responses.Value(status).Value.Description)}
		for _, content := range o.Responses.Value(status).Value.Content {
			answer.Schema = nameOf(content.Schema)
		}
		shown.Answers = append(shown.Answers, answer)
	}
	slices.SortFunc(shown.Answers, func(a, b referenceAnswer) int { return strings.Compare(a.Status, b.Status) })
	return shown
}

func showSchema(name string, schema *openapi3.Schema) referenceSchema {
	shown := referenceSchema{Name: name, About: schema.Description, Type: typeOf(schema), Example: example(schema.Example)}
	for field, of := range schema.Properties {
		shown.Fields = append(shown.Fields, showField(field, of, slices.Contains(schema.Required, field)))
	}
	slices.SortFunc(shown.Fields, func(a, b referenceField) int { return strings.Compare(a.Name, b.Name) })
	return shown
}

func showField(name string, schema *openapi3.SchemaRef, isRequired bool) referenceField {
	field := referenceField{Name: name, Schema: nameOf(schema), Type: typeOf(schema.Value), About: schema.Value.Description, IsRequired: isRequired}
	if items := schema.Value.Items; items != nil {
		field.Schema = nameOf(items)
	}
	return field
}

// nameOf is the name of a schema that has one.
func nameOf(schema *openapi3.SchemaRef) string {
	if schema == nil {
		return ""
	}
	name, _ := strings.CutPrefix(schema.Ref, "#/components/schemas/")
	return name
}

func typeOf(schema *openapi3.Schema) string {
	text := strings.Join(schema.Type.Slice(), " or ")
	if len(schema.Enum) > 0 {
		var choices []string
		for _, choice := range schema.Enum {
			choices = append(choices, fmt.Sprint(choice))
		}
		text += ": " + strings.ReplaceAll(strings.Join(choices, ", "), "<nil>", "null")
	}
	return text
}

func example(value any) string {
	if value == nil {
		return ""
	}
	if text, ok := value.(string); ok {
		return text
	}
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil { // it was read from YAML, so it can be written
		return ""
	}
	return string(text)
}

// paragraphs are what blank lines part; an item of a list is one too.
func paragraphs(markdown string) []string {
	var found []string
	for part := range strings.SplitSeq(strings.ReplaceAll(markdown, "\n- ", "\n\n- "), "\n\n") {
		if text := strings.NewReplacer("**", "", "`", "", "## ", "").Replace(strings.TrimSpace(part)); text != "" {
			found = append(found, text)
		}
	}
	return found
}
