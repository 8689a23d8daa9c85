// A session told by the official Go SDK to a real server.
//
//	client MOTU EXPECTED
//
// This SDK leaves by closing the server's standard input alone, and goes on reading.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"sort"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// server is one running server and what its person was asked.
type server struct {
	*mcp.ClientSession
	asked []string
}

// check ends the program unless something holds.
func check(holds bool, format string, arguments ...any) {
	if !holds {
		fmt.Fprintf(os.Stderr, format+"\n", arguments...)
		os.Exit(1)
	}
}

func serve(motu, profile string, approves bool, story func(*server)) {
	var here server
	options := &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, ask *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			here.asked = append(here.asked, ask.Params.Message)
			if !approves {
				return &mcp.ElicitResult{Action: "decline"}, nil
			}
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"approve": true}}, nil
		},
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "stories", Version: "1"}, options)
	command := exec.Command(motu, "mcp", "serve", "--profile", profile)
	command.Stderr = os.Stderr
	session, err := client.Connect(context.Background(), &mcp.CommandTransport{Command: command}, nil)
	check(err == nil, "connect: %v", err)
	here.ClientSession = session
	story(&here)
	began := time.Now()
	check(session.Close() == nil, "%s: the server did not end well", profile)
	// After five seconds this SDK would have sent a signal.
	check(time.Since(began) < 4*time.Second, "%s: the server was slow to leave", profile)
}

// result calls a tool and reads what it says in its structured part.
func (s *server) result(tool string, arguments map[string]any) (map[string]any, bool) {
	called, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
	check(err == nil, "%s: %v", tool, err)
	said, ok := called.StructuredContent.(map[string]any)
	check(ok, "%s: %v", tool, called)
	return said, called.IsError
}

func (s *server) told(tool string, arguments map[string]any) map[string]any {
	said, failed := s.result(tool, arguments)
	check(!failed, "%s: %v", tool, said)
	return said
}

func profiles(motu, expected string) {
	var all map[string][]string
	check(json.Unmarshal([]byte(expected), &all) == nil, "what is expected is not JSON")
	for profile, names := range all {
		serve(motu, profile, true, func(s *server) {
			var found []string
			for tool, err := range s.Tools(context.Background(), nil) {
				check(err == nil, "%s: %v", profile, err)
				found = append(found, tool.Name)
			}
			sort.Strings(names)
			sort.Strings(found)
			check(reflect.DeepEqual(names, found), "%s has %v", profile, found)
		})
	}
}

func commands(s *server) {
	text := s.told("vm_run", map[string]any{"command": "echo $((6*7)); exit 2", "environment": "busybox"})
	check(text["stdout"] == "42\n" && text["exit_code"] == 2.0, "a script: %v", text)
	list := map[string]any{"command": []string{"echo", "$((6*7))", "it's"}, "environment": "busybox"}
	words := s.told("vm_run", list)
	check(words["stdout"] == "$((6*7)) it's\n", "a program and its arguments: %v", words)
	wrong, failed := s.result("vm_run", map[string]any{"command": 3})
	check(failed && wrong["kind"] == "invalid", "neither: %v", wrong)
}

func workspace(s *server) {
	made := s.told("workspace_create", map[string]any{"environment": "busybox", "name": "from go"})
	id := made["workspace_id"]
	write := map[string]any{"workspace_id": id, "path": "/workspace/a", "text": "x\n"}
	s.told("workspace_file_write", write)
	list := map[string]any{"workspace_id": id, "command": []string{"cat", "/workspace/a"}}
	check(s.told("workspace_exec", list)["stdout"] == "x\n", "a list in a workspace")
	uri := fmt.Sprintf("motu://workspaces/%s/diff", id)
	read, err := s.ReadResource(context.Background(), &mcp.ReadResourceParams{URI: uri})
	check(err == nil && strings.Contains(read.Contents[0].Text, "+x"), "%s: %v", uri, err)

	// Who gives up does not wait, and the next call is answered.
	short, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	long := map[string]any{"workspace_id": id, "command": "sleep 4141", "timeout_seconds": 600}
	_, err = s.CallTool(short, &mcp.CallToolParams{Name: "workspace_exec", Arguments: long})
	check(err != nil, "a call that was given up has an answer")

	s.told("workspace_delete", map[string]any{"workspace_id": id})
	check(len(s.asked) == 1 && strings.Contains(s.asked[0], "Delete"), "asked: %v", s.asked)
	gone, failed := s.result("workspace_status", map[string]any{"workspace_id": id})
	check(failed && gone["kind"] == "not_found", "after its end: %v", gone)
}

func refused(s *server) {
	made := s.told("workspace_create", map[string]any{"environment": "busybox"})
	id := map[string]any{"workspace_id": made["workspace_id"]}
	kept, failed := s.result("workspace_delete", id)
	check(failed && kept["kind"] == "denied", "a person said no: %v", kept)
	s.told("workspace_status", id)
}

func main() {
	motu, expected := os.Args[1], os.Args[2]
	profiles(motu, expected)
	serve(motu, "workspace-core", true, func(s *server) {
		commands(s)
		workspace(s)
	})
	serve(motu, "workspace-core", false, refused)
}
