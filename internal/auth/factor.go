package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/pquerna/otp"
	"github.com/pquerna/otp/hotp"

	"github.com/sluicegate/sluice/internal/rules"
)

// The second factor of an account is a secret that it shares with an app, which makes a code of it every 30 s: RFC 6238 with
// SHA-1 and six digits, which all apps know. Codes of the step before and after the present one are taken too, because clocks
// differ. A code is taken once.
const (
	codeStep    = 30 * time.Second
	codeDigits  = 6
	codeDrift   = 1  // steps
	secretBytes = 20 // as RFC 4226 recommends for SHA-1

	// RecoveryCodes is how many codes an account gets for the day on which it has lost its app.
	RecoveryCodes = 10
	// recoveryBytes are 120 random bits, so that a plain digest of a code may be stored.
	recoveryBytes = 15

	// PendingLife is how long a sign-in waits for the second factor, and pendingTries how many codes it takes.
	PendingLife  = 5 * time.Minute
	pendingTries = 5
	// maxPending is how many sign-ins of an account wait at once; further ones end the oldest.
	maxPending = 10

	// FreshFor is how long after signing in, or signing in again, a session may do what is dangerous.
	FreshFor = 10 * time.Minute
)

var codeOptions = hotp.ValidateOpts{Digits: otp.DigitsSix, Algorithm: otp.AlgorithmSHA1}

// What the second factor adds to the answers of a Gate.
var (
	// ErrWrongCode is for a code that is wrong, or was used before.
	ErrWrongCode = errors.New("wrong code")
	// ErrNeedsCode is for an account with a second factor whose code is missing.
	ErrNeedsCode = errors.New("the code of the second factor is missing")
)

// SecondFactorError is for a sign-in that is half done: FinishSignIn with the token and a code completes it. The token gives
// access to nothing else.
type SecondFactorError struct {
	Token     string
	ExpiresAt time.Time
}

// Error leaves out the token.
func (SecondFactorError) Error() string { return "the second factor is needed" }

// SecondFactor is what is stored of an account's second factor.
type SecondFactor struct {
	Since         time.Time // zero: it waits for its first code
	Sealed        []byte
	RecoveryCodes int // that are left
}

// FactorStore keeps second factors, and sign-ins that wait for them.
type FactorStore interface {
	// SecondFactor is rules.ErrNotFound if there is none.
	SecondFactor(ctx context.Context, account AccountID) (SecondFactor, error)
	// BeginSecondFactor stores a secret that waits for its first code. It is rules.ErrExists if the account has a factor.
	BeginSecondFactor(ctx context.Context, account AccountID, sealed []byte) error
	// TurnSecondFactorOn makes the waiting factor count, stores recovery codes, and ends all sessions of the account but one.
	// It is rules.ErrExists if the account has a factor.
	TurnSecondFactorOn(ctx context.Context, by rules.Actor, session Session, codes []Digest) (Account, error)
	// TurnSecondFactorOff is rules.ErrNotFound if the account has no factor. With endSessions it ends all sessions.
	TurnSecondFactorOff(ctx context.Context, by rules.Actor, account AccountID, endSessions bool) (Account, error)
	ReplaceRecoveryCodes(ctx context.Context, by rules.Actor, account AccountID, codes []Digest) error
	// UseTimeStep uses up the codes of a time step and of earlier ones. It is rules.ErrNotFound if they were used before.
	UseTimeStep(ctx context.Context, account AccountID, step int64, sealed, sealedAgain []byte) error
	// UseRecoveryCode is rules.ErrNotFound for a code that is none of the account's, or not any more.
	UseRecoveryCode(ctx context.Context, account AccountID, code Digest) error

	// CreatePending stores a sign-in that waits for the second factor. Like CreateSession it is rules.ErrNotFound if the
	// account has got another password or was disabled meanwhile.
	CreatePending(ctx context.Context, account AccountID, passwordHash string, token Digest, expiresAt, now time.Time, most int) error
	// TryPending counts an attempt at a pending sign-in's second factor. It is rules.ErrNotFound if that is over.
	TryPending(ctx context.Context, token Digest, now time.Time, most int) (account Account, passwordHash string, tries int, err error)
	// EndPending is rules.ErrNotFound if it has ended before.
	EndPending(ctx context.Context, token Digest) error
	// ConfirmSession notes that the session's owner has signed in again.
	ConfirmSession(ctx context.Context, session int64) error
}

// Enrolment is what an app needs to make codes. It is shown once.
type Enrolment struct {
	Secret string // in base32, for typing
	URI    string // otpauth://…, for a QR code
}

const factorUse = "second factor"

// BeginSecondFactor makes a secret for the account of a session. It counts once TurnSecondFactorOn has seen a code made of
// it. It is ErrNoSecretKey, or rules.ErrExists if the account has a factor.
func (g *Gate) BeginSecondFactor(ctx context.Context, session Session) (Enrolment, error) {
	account := session.Account
	secret := make([]byte, secretBytes)
	_, _ = rand.Read(secret) // it never fails; see its documentation
	sealed, err := g.options.Vault.seal(factorUse, int64(account.ID), secret)
	if err != nil {
		return Enrolment{}, err
	}
	if err := g.store.BeginSecondFactor(ctx, account.ID, sealed); err != nil {
		return Enrolment{}, err
	}
	return enrolment(account.Email, secret), nil
}

func enrolment(email string, secret []byte) Enrolment {
	const issuer = "Sluice"
	text := base32Text(secret)
	query := url.Values{"secret": {text}, "issuer": {issuer}}
	uri := "otpauth://totp/" + url.PathEscape(issuer+":"+email) + "?" + query.Encode()
	return Enrolment{Secret: text, URI: uri}
}

func base32Text(secret []byte) string {
	return base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(secret)
}

// TurnSecondFactorOn makes the factor of a session's account count, if the code was made of its secret. It ends all other
// sessions, and returns the recovery codes, which are never shown again. It is ErrWrongCode, TooSoonError, rules.ErrNotFound
// if no factor waits, or rules.ErrExists if the account has one.
func (g *Gate) TurnSecondFactorOn(ctx context.Context, by rules.Actor, session Session, code string, from Browser) ([]string, error) {
	account := session.Account
	factor, err := g.store.SecondFactor(ctx, account.ID)
	switch {
	case err != nil:
		return nil, err
	case !factor.Since.IsZero():
		return nil, rules.ErrExists
	}
	limits := sessionLimits(session.ID)
	if err := g.count(ctx, limits); err != nil {
		return nil, err
	}
	if err := g.useTimeStep(ctx, account.ID, factor, tidyCode(code)); err != nil {
		return nil, err
	}
	codes, digests := newRecoveryCodes()
	by.Act = "turn the second factor on"
	if _, err := g.store.TurnSecondFactorOn(ctx, by, session, digests); err != nil {
		return nil, err
	}
	g.forget(ctx, limits[0].Subject)
	g.notify(ctx, account, NoticeFactorOn, from)
	return codes, nil
}

// TurnSecondFactorOff removes the factor of an account and its recovery codes.
func (g *Gate) TurnSecondFactorOff(ctx context.Context, by rules.Actor, account Account, from Browser) error {
	by.Act = "turn the second factor off"
	if _, err := g.store.TurnSecondFactorOff(ctx, by, account.ID, false); err != nil {
		return err
	}
	g.notify(ctx, account, NoticeFactorOff, from)
	return nil
}

// RemoveSecondFactor removes the lost factor of the account with an address, and ends its sessions. It is rules.ErrNotFound
// if there is no such account, or it has no factor.
func (g *Gate) RemoveSecondFactor(ctx context.Context, by rules.Actor, email string) (Account, error) {
	account, _, err := g.store.PasswordOf(ctx, email, "")
	if err != nil {
		return Account{}, err
	}
	by.Act = "remove the second factor"
	if account, err = g.store.TurnSecondFactorOff(ctx, by, account.ID, true); err != nil {
		return Account{}, err
	}
	g.notify(ctx, account, NoticeFactorOff, operator)
	return account, nil
}

// ReplaceRecoveryCodes makes new recovery codes for an account with a factor. The former ones end.
func (g *Gate) ReplaceRecoveryCodes(ctx context.Context, by rules.Actor, account Account, from Browser) ([]string, error) {
	codes, digests := newRecoveryCodes()
	by.Act = "replace the recovery codes"
	if err := g.store.ReplaceRecoveryCodes(ctx, by, account.ID, digests); err != nil {
		return nil, err
	}
	g.notify(ctx, account, NoticeCodes, from)
	return codes, nil
}

// SecondFactor returns the state of an account's factor; the zero value for none. It has no secret.
func (g *Gate) SecondFactor(ctx context.Context, account AccountID) (SecondFactor, error) {
	factor, err := g.store.SecondFactor(ctx, account)
	if errors.Is(err, rules.ErrNotFound) || err == nil && factor.Since.IsZero() {
		return SecondFactor{}, nil
	}
	factor.Sealed = nil
	return factor, err
}

// newRecoveryCodes makes codes such as ABCDEF-GHJKLM-NPQRST-UVWXYZ.
func newRecoveryCodes() (codes []string, digests []Digest) {
	for range RecoveryCodes {
		random := make([]byte, recoveryBytes)
		_, _ = rand.Read(random) // it never fails; see its documentation
		text := base32Text(random)
		codes = append(codes, text[:6]+"-"+text[6:12]+"-"+text[12:18]+"-"+text[18:])
		digests = append(digests, recoveryDigest(text))
	}
	return codes, digests
}

func recoveryDigest(code string) Digest {
	return sha256.Sum256([]byte("sluice recovery code\x00" + code))
}

// tidyCode removes what people type around the letters and digits of a code.
func tidyCode(code string) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || r == '-' {
			return -1
		}
		return r
	}, strings.ToUpper(code))
}

// factorLimits count the codes that are tried for an account. A browser in which the account has signed in before has a
// count of its own, so that somebody with the password does not keep its owner out.
func factorLimits(account *Account, hash string, from Browser) []Limit {
	subject := subjectOf("second factor", binary.BigEndian.AppendUint64(nil, uint64(account.ID)))
	if device, ok := deviceLimits(from.Device, account.ID, hash); ok {
		subject = subjectOf("second factor of a device", device[0].Subject[:])
	}
	return []Limit{{Counter{subject, anywhere}, Tight}}
}

// useCode uses up a code of the app or a recovery code. It is ErrWrongCode or TooSoonError.
func (g *Gate) useCode(ctx context.Context, account *Account, hash, code string, from Browser) error {
	limits := factorLimits(account, hash, from)
	if err := g.count(ctx, limits); err != nil {
		return err
	}
	factor, err := g.store.SecondFactor(ctx, account.ID)
	if err != nil {
		return err
	}
	code = tidyCode(code)
	isRecovery := len(code) != codeDigits
	if isRecovery {
		err = g.store.UseRecoveryCode(ctx, account.ID, recoveryDigest(code))
		if errors.Is(err, rules.ErrNotFound) {
			err = ErrWrongCode
		}
	} else {
		err = g.useTimeStep(ctx, account.ID, factor, code)
	}
	if err != nil {
		return err
	}
	if isRecovery {
		g.notify(ctx, *account, NoticeRecovery, from)
	}
	g.forget(ctx, limits[0].Subject)
	return nil
}

// useTimeStep uses up a code of the app.
func (g *Gate) useTimeStep(ctx context.Context, account AccountID, factor SecondFactor, code string) error {
	secret, isStale, err := g.options.Vault.open(factorUse, int64(account), factor.Sealed)
	if err != nil {
		return fmt.Errorf("open the second factor of account %d: %w", account, err)
	}
	step, ok := matchingStep(secret, code, g.options.Now())
	if !ok {
		return ErrWrongCode
	}
	sealed := factor.Sealed
	if isStale {
		if sealed, err = g.options.Vault.seal(factorUse, int64(account), secret); err != nil {
			return err
		}
	}
	err = g.store.UseTimeStep(ctx, account, step, factor.Sealed, sealed)
	if errors.Is(err, rules.ErrNotFound) {
		return ErrWrongCode // it was used before
	}
	return err
}

// matchingStep returns the time step whose code it is. All steps are compared, whichever it is.
func matchingStep(secret []byte, code string, now time.Time) (step int64, ok bool) {
	present, text := now.Unix()/int64(codeStep/time.Second), base32Text(secret)
	for candidate := present - codeDrift; candidate <= present+codeDrift; candidate++ {
		// An error is a code of another form.
		if fits, err := hotp.ValidateCustom(code, uint64(candidate), text, codeOptions); err == nil && fits {
			step, ok = candidate, true
		}
	}
	return step, ok
}
