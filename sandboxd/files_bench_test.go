package sandboxd

import (
	"io"
	"net/http"
	"os"
	"testing"
)

const benchSize = 64 << 20

// BenchmarkUpload is a file of 64 MiB that takes the place of the one before.
func BenchmarkUpload(b *testing.B)       { upload(b, Options{}) }
func BenchmarkUploadAsRoot(b *testing.B) { upload(b, asRoot(b)) }

func upload(b *testing.B, options Options) {
	a := newAgent(b, options)
	path := b.TempDir() + "/f"
	b.SetBytes(benchSize)
	for b.Loop() {
		body := zeros(benchSize)
		res, err := a.client.Post(a.url+filesURL(path), octets, &body)
		if err != nil || res.StatusCode != http.StatusOK {
			b.Fatal(res, err)
		}
		_ = res.Body.Close()
	}
}

// BenchmarkUploadSmall is a file of 1 KiB that takes the place of the one before.
func BenchmarkUploadSmall(b *testing.B)       { uploadSmall(b, Options{}) }
func BenchmarkUploadSmallAsRoot(b *testing.B) { uploadSmall(b, asRoot(b)) }

func uploadSmall(b *testing.B, options Options) {
	a := newAgent(b, options)
	path := b.TempDir() + "/f"
	b.ReportAllocs()
	for b.Loop() {
		body := zeros(1 << 10)
		res, err := a.client.Post(a.url+filesURL(path), octets, &body)
		if err != nil || res.StatusCode != http.StatusOK {
			b.Fatal(res, err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
}

// BenchmarkDownload is a file of 64 MiB as it is, and BenchmarkDownloadGzip compressed.
func BenchmarkDownload(b *testing.B)       { download(b, Options{}, "identity") }
func BenchmarkDownloadAsRoot(b *testing.B) { download(b, asRoot(b), "identity") }
func BenchmarkDownloadGzip(b *testing.B)   { download(b, Options{}, "gzip") }

func download(b *testing.B, options Options, encoding string) {
	a := newAgent(b, options)
	path := b.TempDir() + "/f"
	if err := os.WriteFile(path, make([]byte, benchSize), 0o600); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(benchSize)
	for b.Loop() {
		req, err := http.NewRequest(http.MethodGet, a.url+filesURL(path), nil)
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Accept-Encoding", encoding)
		res, err := a.client.Do(req)
		if err != nil || res.StatusCode != http.StatusOK {
			b.Fatal(res, err)
		}
		if n, err := io.Copy(io.Discard, res.Body); err != nil || n == 0 {
			b.Fatal(n, err)
		}
		_ = res.Body.Close()
	}
}
