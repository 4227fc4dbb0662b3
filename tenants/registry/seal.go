package registry

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Sealer encrypts what must not lie readable in the database: signing keys,
// brokers' passwords, stored answers. AES-256-GCM; sealed bytes are a version
// byte (1), a nonce of 12 bytes, then ciphertext and tag. The purpose is
// authenticated, so a sealed value moved to another place does not open.
type Sealer struct{ aead cipher.AEAD }

const (
	keySize     = 32
	sealVersion = 1
)

// NewSealer makes a Sealer from a key of 32 bytes.
func NewSealer(key []byte) (*Sealer, error) {
	if len(key) != keySize {
		return nil, fmt.Errorf("seal: the key has %d bytes, want %d", len(key), keySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return &Sealer{aead: aead}, nil
}

// OpenKeyFile makes a Sealer from the key file at path, which it makes with a
// new random key, mode 0600, if it is missing. A file that others may read is
// refused. Every replica of one control plane needs the same file.
func OpenKeyFile(path string) (*Sealer, error) {
	key, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := createKeyFile(path); err != nil {
			return nil, fmt.Errorf("key file: %w", err)
		}
		key, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("key file: %s may be read by others (mode %o): chmod 600 it", path, info.Mode().Perm())
	}
	return NewSealer(key)
}

// createKeyFile writes a whole file under another name and links it into
// place, so that two starts at once agree on one key.
func createKeyFile(path string) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".key-") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	key := make([]byte, keySize)
	rand.Read(key)
	if _, err := tmp.Write(key); err != nil {
		tmp.Close()
		return err
	}
	if err := errors.Join(tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// Seal encrypts plain for a purpose, such as "signing-key/key_…".
func (s *Sealer) Seal(plain []byte, purpose string) []byte {
	out := make([]byte, 1+s.aead.NonceSize(), 1+s.aead.NonceSize()+len(plain)+s.aead.Overhead())
	out[0] = sealVersion
	rand.Read(out[1:])
	return s.aead.Seal(out, out[1:1+s.aead.NonceSize()], plain, []byte(purpose))
}

// Open decrypts what Seal made for the same purpose.
func (s *Sealer) Open(sealed []byte, purpose string) ([]byte, error) {
	n := 1 + s.aead.NonceSize()
	if len(sealed) < n+s.aead.Overhead() || sealed[0] != sealVersion {
		return nil, errors.New("seal: not a sealed value")
	}
	plain, err := s.aead.Open(nil, sealed[1:n], sealed[n:], []byte(purpose))
	if err != nil {
		return nil, errors.New("seal: wrong key file, or the value was changed or moved")
	}
	return plain, nil
}
