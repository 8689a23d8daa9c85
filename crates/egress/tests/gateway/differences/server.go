// The site of good.example.org, by net/http.
package main

import (
	"io"
	"net/http"
	"os"
	"path"
	"strings"
)

func answer(out http.ResponseWriter, request *http.Request) {
	host := strings.Split(request.Host, ":")[0]
	place := path.Clean(request.URL.Path)
	text := "SECRET path\n"
	switch {
	case host != "good.example.org":
		text = "SECRET host\n"
	case place == "/open/last":
		text = "LAST\n"
	case place == "/open" || strings.HasPrefix(place, "/open/"):
		text = "OPEN\n"
	}
	io.WriteString(out, text)
}

func main() {
	panic(http.ListenAndServe(os.Args[1], http.HandlerFunc(answer)))
}
