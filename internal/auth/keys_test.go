package auth

import "testing"

func TestANewTokenComesApartIntoWhatIsStored(t *testing.T) {
	t.Parallel()
	token, keyID, digest := NewKeyToken()
	gotID, secret, ok := SplitKeyToken(token)
	if !ok || gotID != keyID || DigestSecret(secret) != digest || len(secret) != 32 {
		t.Errorf("token %q came apart into %q and %q (%v)", token, gotID, secret, ok)
	}
	if again, _, _ := NewKeyToken(); again == token {
		t.Error("two tokens are the same")
	}
}

func TestWhatIsNoToken(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "slk_", "slk_demo", "slk_demo_", "slk__secret", "demo_secret",
		"SLK_demo_secret",
	} {
		if id, secret, ok := SplitKeyToken(text); ok {
			t.Errorf("%q came apart into %q and %q", text, id, secret)
		}
	}
}
