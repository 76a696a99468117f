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

// The second factor is RFC 6238 with SHA-1, six digits and 30 s, because all apps support these. Codes of the
// steps before and after are accepted, because clocks differ.
const (
	codeStep    = 30 * time.Second
	codeDigits  = 6
	codeDrift   = 1  // steps
	secretBytes = 20 // as RFC 4226 recommends for SHA-1

	RecoveryCodes = 10 // replace a lost app
	recoveryBytes = 15 // 120 random bits, so that a plain digest of a code may be stored

	PendingLife  = 5 * time.Minute // of a sign-in that waits for the second factor
	pendingTries = 5
	maxPending   = 10 // further ones end the oldest

	FreshFor = 10 * time.Minute // after an authentication, for dangerous operations
)

var codeOptions = hotp.ValidateOpts{Digits: otp.DigitsSix, Algorithm: otp.AlgorithmSHA1}

// The errors that the second factor adds.
var (
	ErrWrongCode = errors.New("wrong code") // or used before
	ErrNeedsCode = errors.New("the code of the second factor is missing")
)

// SecondFactorError is returned by a sign-in that FinishSignIn completes with the token and a code.
type SecondFactorError struct {
	Token     string
	ExpiresAt time.Time
}

func (SecondFactorError) Error() string { return "the second factor is needed" }

// SecondFactor is the stored second factor of an account.
type SecondFactor struct {
	Since         time.Time // zero: waits for its first code
	Sealed        []byte
	RecoveryCodes int // unused
}

// FactorStore stores second factors, and sign-ins that wait for them.
type FactorStore interface {
	SecondFactor(ctx context.Context, account AccountID) (SecondFactor, error)
	// BeginSecondFactor stores a secret that waits for its first code, or returns rules.ErrExists if the account has a
	// factor.
	BeginSecondFactor(ctx context.Context, account AccountID, sealed []byte) error
	// TurnSecondFactorOn activates the waiting factor and ends all other sessions. Returns rules.ErrExists if the
	// account has a factor.
	TurnSecondFactorOn(ctx context.Context, by rules.Actor, session Session, codes []Digest) (Account, error)
	// TurnSecondFactorOff returns rules.ErrNotFound if the account has no factor.
	TurnSecondFactorOff(ctx context.Context, by rules.Actor, account AccountID, endSessions bool) (Account, error)
	ReplaceRecoveryCodes(ctx context.Context, by rules.Actor, account AccountID, codes []Digest) error
	// UseTimeStep invalidates the codes of this and earlier time steps, or returns rules.ErrNotFound if they were used.
	UseTimeStep(ctx context.Context, account AccountID, step int64, sealed, sealedAgain []byte) error
	// UseRecoveryCode returns rules.ErrNotFound for an invalid code.
	UseRecoveryCode(ctx context.Context, account AccountID, code Digest) error

	// CreatePending returns rules.ErrNotFound if the account was disabled or got another password meanwhile.
	CreatePending(ctx context.Context, account AccountID, passwordHash string, token Digest, expiresAt, now time.Time,
		most int) error
	// TryPending counts an attempt, or returns rules.ErrNotFound if the sign-in has ended.
	TryPending(ctx context.Context, token Digest, now time.Time, most int) (account Account, passwordHash string,
		tries int, err error)
	// EndPending returns rules.ErrNotFound if the sign-in has ended before.
	EndPending(ctx context.Context, token Digest) error
	ConfirmSession(ctx context.Context, session int64) error
}

// Enrolment is the input for an authenticator app, shown once.
type Enrolment struct {
	Secret string // base32
	URI    string // otpauth://…, for a QR code
}

const factorUse = "second factor"

// BeginSecondFactor creates a secret, which TurnSecondFactorOn activates. Returns ErrNoSecretKey, or
// rules.ErrExists if the account has a factor.
func (g *Gate) BeginSecondFactor(ctx context.Context, session Session) (Enrolment, error) {
	account := session.Account
	secret := make([]byte, secretBytes)
	_, _ = rand.Read(secret)
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

// TurnSecondFactorOn activates the waiting factor, ends all other sessions, and returns the recovery codes, which
// are never shown again. Returns ErrWrongCode, TooSoonError, rules.ErrNotFound if no factor waits, or
// rules.ErrExists if the account has one.
func (g *Gate) TurnSecondFactorOn(ctx context.Context, by rules.Actor, session Session, code string,
	from Browser,
) ([]string, error) {
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

// TurnSecondFactorOff removes an account's factor and recovery codes.
func (g *Gate) TurnSecondFactorOff(ctx context.Context, by rules.Actor, account Account, from Browser) error {
	by.Act = "turn the second factor off"
	if _, err := g.store.TurnSecondFactorOff(ctx, by, account.ID, false); err != nil {
		return err
	}
	g.notify(ctx, account, NoticeFactorOff, from)
	return nil
}

// RemoveSecondFactor removes a lost factor and ends the account's sessions, or returns rules.ErrNotFound.
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

// ReplaceRecoveryCodes creates new recovery codes and invalidates the former ones.
func (g *Gate) ReplaceRecoveryCodes(ctx context.Context, by rules.Actor, account Account, from Browser) ([]string,
	error,
) {
	codes, digests := newRecoveryCodes()
	by.Act = "replace the recovery codes"
	if err := g.store.ReplaceRecoveryCodes(ctx, by, account.ID, digests); err != nil {
		return nil, err
	}
	g.notify(ctx, account, NoticeCodes, from)
	return codes, nil
}

// SecondFactor returns the state of an account's factor without its secret; zero for none.
func (g *Gate) SecondFactor(ctx context.Context, account AccountID) (SecondFactor, error) {
	factor, err := g.store.SecondFactor(ctx, account)
	if errors.Is(err, rules.ErrNotFound) || err == nil && factor.Since.IsZero() {
		return SecondFactor{}, nil
	}
	factor.Sealed = nil
	return factor, err
}

func newRecoveryCodes() (codes []string, digests []Digest) {
	for range RecoveryCodes {
		random := make([]byte, recoveryBytes)
		_, _ = rand.Read(random)
		text := base32Text(random)
		codes = append(codes, text[:6]+"-"+text[6:12]+"-"+text[12:18]+"-"+text[18:])
		digests = append(digests, recoveryDigest(text))
	}
	return codes, digests
}

func recoveryDigest(code string) Digest {
	return sha256.Sum256([]byte("sluice recovery code\x00" + code))
}

func tidyCode(code string) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || r == '-' {
			return -1
		}
		return r
	}, strings.ToUpper(code))
}

// factorLimits gives a known device a separate counter, so that an attacker with the password does not lock out
// the owner.
func factorLimits(account *Account, hash string, from Browser) []Limit {
	subject := subjectOf("second factor", binary.BigEndian.AppendUint64(nil, uint64(account.ID)))
	if device, ok := deviceLimits(from.Device, account.ID, hash); ok {
		subject = subjectOf("second factor of a device", device[0].Subject[:])
	}
	return []Limit{{Counter{subject, anywhere}, Tight}}
}

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
		return ErrWrongCode
	}
	return err
}

// matchingStep compares all steps, in constant time.
func matchingStep(secret []byte, code string, now time.Time) (step int64, ok bool) {
	present, text := now.Unix()/int64(codeStep/time.Second), base32Text(secret)
	for candidate := present - codeDrift; candidate <= present+codeDrift; candidate++ {
		// An error means that the code is malformed.
		if fits, err := hotp.ValidateCustom(code, uint64(candidate), text, codeOptions); err == nil && fits {
			step, ok = candidate, true
		}
	}
	return step, ok
}
