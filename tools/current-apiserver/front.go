package main

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// A front routes requests by what they are for.
type front struct {
	own, core      *url.URL
	toOwn, toCore  *httputil.ReverseProxy
	definitions    listers.CustomResourceDefinitionLister
	betweenServers http.RoundTripper
}

func newFront(own, core *url.URL, definitions listers.CustomResourceDefinitionLister) *front {
	// Both servers are on this machine, and started by whom starts this one.
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: 512,
	}
	proxy := func(target *url.URL) *httputil.ReverseProxy {
		return &httputil.ReverseProxy{
			Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
			Transport:     transport,
			FlushInterval: -1,
		}
	}
	return &front{own, core, proxy(own), proxy(core), definitions, transport}
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case parts[0] == "version" || strings.HasPrefix(r.URL.Path, "/openapi/v3"):
		f.toOwn.ServeHTTP(w, r)
	case parts[0] == "readyz" && !f.ownIsReady(r):
		http.Error(w, "the server of custom resources is not ready", http.StatusServiceUnavailable)
	case parts[0] != "apis":
		f.toCore.ServeHTTP(w, r)
	case len(parts) <= 3:
		f.discover(w, r)
	case f.isOwn(parts[1], parts[3:]):
		f.toOwn.ServeHTTP(w, r)
	default:
		f.toCore.ServeHTTP(w, r)
	}
}

// isOwn says whether a resource of a group is served here.
func (f *front) isOwn(group string, rest []string) bool {
	if group == "apiextensions.k8s.io" {
		return true
	}
	if rest[0] == "namespaces" && len(rest) > 2 {
		rest = rest[2:]
	}
	_, err := f.definitions.Get(rest[0] + "." + group)
	return err == nil
}

func (f *front) ownIsReady(r *http.Request) bool {
	status, _ := f.get(f.own, r, "/readyz")
	if status == http.StatusOK {
		_, err := f.definitions.List(labels.Everything())
		return err == nil
	}
	return false
}

func (f *front) get(from *url.URL, r *http.Request, path string) (int, map[string]any) {
	request, err := http.NewRequestWithContext(r.Context(), "GET", from.String()+path, nil)
	if err != nil {
		return http.StatusInternalServerError, nil
	}
	request.Header.Set("Authorization", r.Header.Get("Authorization"))
	request.Header.Set("Accept", "application/json")
	answer, err := f.betweenServers.RoundTrip(request)
	if err != nil {
		return http.StatusServiceUnavailable, nil
	}
	defer answer.Body.Close()
	var body map[string]any
	json.NewDecoder(answer.Body).Decode(&body)
	return answer.StatusCode, body
}

// discover tells what either server has: groups, versions of a group, or resources of a version.
func (f *front) discover(w http.ResponseWriter, r *http.Request) {
	status, all := f.get(f.core, r, r.URL.Path)
	ownStatus, own := f.get(f.own, r, r.URL.Path)
	if strings.Trim(r.URL.Path, "/") == "apis" {
		ownStatus, own = http.StatusOK, f.groups(r)
	}
	switch {
	case status != http.StatusOK:
		status, all = ownStatus, own
	case ownStatus == http.StatusOK:
		for _, field := range []string{"groups", "versions", "resources"} {
			if more, has := own[field].([]any); has {
				all[field] = append(missing(more, all[field]), all[field].([]any)...)
			}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(all)
}

// groups are those of definitions: a server of custom resources leaves that list to others.
func (f *front) groups(r *http.Request) map[string]any {
	names := map[string]bool{"apiextensions.k8s.io": true}
	definitions, _ := f.definitions.List(labels.Everything())
	for _, definition := range definitions {
		names[definition.Spec.Group] = true
	}
	groups := []any{}
	for name := range names {
		if status, group := f.get(f.own, r, "/apis/"+name); status == http.StatusOK {
			groups = append(groups, group)
		}
	}
	return map[string]any{"groups": groups}
}

// missing are the entries whose names are not among those of `there`.
func missing(entries []any, there any) []any {
	name := func(entry any) string {
		fields := entry.(map[string]any)
		if found, has := fields["name"].(string); has {
			return found
		}
		return fields["groupVersion"].(string)
	}
	names := map[string]bool{}
	for _, entry := range there.([]any) {
		names[name(entry)] = true
	}
	left := []any{}
	for _, entry := range entries {
		if !names[name(entry)] {
			left = append(left, entry)
		}
	}
	return left
}
