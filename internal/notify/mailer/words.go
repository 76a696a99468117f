package mailer

import (
	"fmt"
	htmltemplate "html/template"
	"strings"
	"text/template"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
)

// words are what a letter says: paragraphs, perhaps a link, and a closing line.
type words struct {
	Subject string
	Lines   []string
	Link    string // "" for none
	Button  string // what the link does
	Closing string
}

var plainLetter = template.Must(template.New("plain").Parse(
	`{{range .Lines}}{{.}}

{{end}}{{if .Link}}{{.Button}}:
{{.Link}}

{{end}}{{.Closing}}
`))

var htmlLetter = htmltemplate.Must(htmltemplate.New("html").Parse(
	`<!doctype html><html lang="en"><meta charset="utf-8"><title>{{.Subject}}</title>
<body style="font:15px/1.5 system-ui,sans-serif;color:#1c1e21;max-width:34em;margin:2em auto;padding:0 1em">
{{range .Lines}}<p>{{.}}</p>
{{end}}{{if .Link}}<p><a href="{{.Link}}" style="display:inline-block;padding:.6em 1.2em;background:#2357c9;color:#fff;border-radius:4px;text-decoration:none">{{.Button}}</a></p>
<p style="color:#5c6066;font-size:13px">Or copy this address into your browser:<br>{{.Link}}</p>
{{end}}<p style="color:#5c6066;font-size:13px">{{.Closing}}</p>
</body></html>
`))

func (w words) render() (plain, html string, err error) {
	var p, h strings.Builder
	if err := plainLetter.Execute(&p, w); err != nil {
		return "", "", err
	}
	if err := htmlLetter.Execute(&h, w); err != nil {
		return "", "", err
	}
	return p.String(), h.String(), nil
}

const stamp = "2 January 2006, 15:04 MST"

func (s *Sender) words(letter *auth.Letter) (words, error) {
	until := letter.ExpiresAt.UTC().Truncate(time.Minute).Format(stamp)
	switch letter.Kind {
	case auth.MailInvitation:
		return words{
			Subject: fmt.Sprintf("Invitation to %s", letter.TenantName),
			Lines: []string{
				fmt.Sprintf("%s invites you to %s on Sluice, as %s.", letter.InvitedBy, letter.TenantName,
					article(letter.Role)),
				fmt.Sprintf("The link works once, until %s.", until),
			},
			Link: s.link("/invitation", letter.Token), Button: "Accept the invitation",
			Closing: "If you do not know the sender, ignore this message; nothing happens.",
		}, nil
	case auth.MailReset:
		return words{
			Subject: "Reset your password",
			Lines: []string{
				"Somebody, probably you, asked for a link to choose a new password for Sluice.",
				fmt.Sprintf("The link works once, until %s. Using it ends all your sessions.", until),
			},
			Link: s.link("/reset-password", letter.Token), Button: "Choose a new password",
			Closing: "If it was not you, ignore this message; your password stays as it is.",
		}, nil
	case auth.MailProof:
		return words{
			Subject: "Verify your address",
			Lines: []string{
				"An account on Sluice claims this address. Open the link in the browser where you are signed in to it.",
				fmt.Sprintf("The link works once, until %s.", until),
			},
			Link: s.link("/prove-address", letter.Token), Button: "Verify the address",
			Closing: "If you have no such account, ignore this message; nothing happens.",
		}, nil
	case auth.MailNotice:
		return notice(letter)
	case auth.MailKeysExpire:
		return s.keysExpire(letter), nil
	case auth.MailKeysLeft:
		return s.keysLeft(letter), nil
	case auth.MailAlert:
		return s.alert(letter), nil
	case auth.MailTest:
		return words{
			Subject: "Test message from Sluice",
			Lines:   []string{"This message shows that Sluice can send mail."},
			Closing: "Somebody asked for it on the page Mail.",
		}, nil
	}
	return words{}, fmt.Errorf("there are no words for %q", letter.Kind)
}

func notice(letter *auth.Letter) (words, error) {
	happened, ok := map[auth.Notice][2]string{
		auth.NoticeBrowser: {
			"New sign-in to Sluice",
			"Your account was signed in to from a browser that it was not used in before.",
		},
		auth.NoticePassword: {
			"Your password was changed",
			"The password of your account was changed, and all its other sessions have ended.",
		},
		auth.NoticeFactorOn: {
			"Your second factor was turned on",
			"Signing in to your account now needs a code from an app. All its other sessions have ended.",
		},
		auth.NoticeFactorOff: {
			"Your second factor was turned off",
			"Signing in to your account no longer needs a code.",
		},
		auth.NoticeCodes: {
			"Your recovery codes were replaced",
			"Your account got new recovery codes. The former ones no longer work.",
		},
		auth.NoticeRecovery: {
			"A recovery code was used",
			"Somebody signed in to your account with one of its recovery codes.",
		},
		auth.NoticeGuesses: {
			"Wrong codes for your account",
			"Somebody has the password of your account, and has tried wrong codes five times. Nobody got in this way.",
		},
		auth.NoticeLinked: {
			"Another way to sign in to Sluice",
			"An account at a sign-in provider was linked with your account, and can sign in to it.",
		},
		auth.NoticeUnlinked: {
			"A way to sign in to Sluice was removed",
			"An account at a sign-in provider was unlinked from your account.",
		},
	}[auth.Notice(letter.Facts["notice"])]
	if !ok {
		return words{}, fmt.Errorf("there are no words for the notice %q", letter.Facts["notice"])
	}
	from := "Browser: " + letter.Facts["browser"]
	if ip := letter.Facts["ip"]; ip != "" {
		from = "From: " + ip + ". " + from
	}
	return words{
		Subject: happened[0],
		Lines:   []string{happened[1], fmt.Sprintf("When: %s. %s.", letter.CreatedAt.UTC().Format(stamp), from)},
		Closing: "If it was not you, reset your password, and tell a platform admin.",
	}, nil
}

// link has the token in the fragment, which no server and no Referer sees.
func (s *Sender) link(path, token string) string { return s.options.URL + path + "#" + token }

func article(role auth.Role) string {
	if role == auth.Viewer {
		return "a viewer"
	}
	return "an " + string(role)
}

func (s *Sender) keysExpire(letter *auth.Letter) words {
	what, verb := s.keysOf(letter)
	return words{
		Subject: what + " " + verb("expires", "expire") + " soon",
		Lines: append([]string{"Requests with an expired key are refused. Rotate what is still in use:"},
			strings.Split(letter.Facts[auth.FactKeys], "\n")...),
		Link: s.keysPage(letter), Button: "Open the list of keys",
		Closing: "You get this because you manage these keys or made one of them. There is a reminder 14, 7 and 1 " +
			"days before a key expires.",
	}
}

func (s *Sender) keysLeft(letter *auth.Letter) words {
	what, verb := s.keysOf(letter)
	return words{
		Subject: what + " " + verb("was", "were") + " made by somebody who has left",
		Lines: append([]string{"These keys still work, and the person who made them may have a copy. Rotate or " +
			"revoke each, or decide to keep it:"},
			strings.Split(letter.Facts[auth.FactKeys], "\n")...),
		Link: s.keysPage(letter), Button: "Open the list of keys",
		Closing: "You get this because you manage these keys.",
	}
}

// keysOf says what a letter about keys is about, and chooses between one and many.
func (*Sender) keysOf(letter *auth.Letter) (what string, verb func(one, many string) string) {
	tenant, count := letter.Facts[auth.FactTenant], letter.Facts[auth.FactCount]
	one, many, of := "An API key", "API keys", " of "+tenant
	if tenant == "" {
		one, many, of = "A service key", "service keys", " of the platform"
	}
	if count == "1" {
		return one + of, func(one, _ string) string { return one }
	}
	return count + " " + many + of, func(_, many string) string { return many }
}

func (s *Sender) keysPage(letter *auth.Letter) string {
	if slug := letter.Facts[auth.FactSlug]; slug != "" {
		return s.options.URL + "/t/" + slug + "/settings/keys"
	}
	return s.options.URL + "/platform/service-keys"
}

func (s *Sender) alert(letter *auth.Letter) words {
	facts, raisedAt := letter.Facts, letter.CreatedAt // of a message that an earlier version queued
	if at, err := time.Parse(time.RFC3339, facts[auth.FactRaisedAt]); err == nil {
		raisedAt = at
	}
	return words{
		Subject: fmt.Sprintf("Alert of %s: %s", facts[auth.FactTenant], facts[auth.FactAlert]),
		Lines:   []string{facts[auth.FactText], fmt.Sprintf("When: %s.", raisedAt.UTC().Format(stamp))},
		Link:    s.options.URL + "/t/" + facts[auth.FactSlug] + "/settings/alerts?entry=" + facts[auth.FactAlertID],
		Button:  "Open the alert",
		Closing: "You get this because the alert names your address. Owners of the tenant can change it.",
	}
}
