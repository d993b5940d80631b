// Package console tests the console's page in a real Chromium, against a real API server. It
// is a module of its own, so that the product does not depend on what drives the browser.
//
// hack/chromium.sh finds the browser, or installs Debian's. Without one the tests say why they
// cannot run.
package console
