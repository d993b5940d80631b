package trust

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"unicode/utf16"
)

// What a Java key store begins with, and what marks an entry of it that is a trusted certificate.
const (
	storeMagic, storeVersion = 0xfeedfeed, 2
	trustedCert              = 2
)

// storePassword is the one that Java has for stores without secrets.
const storePassword = "changeit"

// keyStore returns the certificates of a PEM text as a Java key store (JKS), which every
// version of Java reads. Java has no other way to be given authorities, and takes a store in
// place of its own.
func keyStore(text []byte) []byte {
	var certs [][]byte
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			certs = append(certs, block.Bytes)
		}
	}
	var b bytes.Buffer
	number := func(n uint32) { b.Write(binary.BigEndian.AppendUint32(nil, n)) }
	words := func(s string) {
		b.Write(binary.BigEndian.AppendUint16(nil, uint16(len(s))))
		b.WriteString(s)
	}
	number(storeMagic)
	number(storeVersion)
	number(uint32(len(certs)))
	for i, der := range certs {
		number(trustedCert)
		words(fmt.Sprint("authority-", i))
		b.Write(make([]byte, 8)) // when it was added
		words("X.509")
		number(uint32(len(der)))
		b.Write(der)
	}
	// The format's checksum. It protects nothing: its key is in every Java.
	sum := sha1.New()
	for _, unit := range utf16.Encode([]rune(storePassword)) {
		sum.Write(binary.BigEndian.AppendUint16(nil, unit))
	}
	sum.Write([]byte("Mighty Aphrodite"))
	sum.Write(b.Bytes())
	return sum.Sum(b.Bytes())
}
