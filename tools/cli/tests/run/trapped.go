// Is the static Go program of the tests of `zerolane run --trap`: a server that tells a digest, and eight clients.
package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"os"
)

const clients = 8

func check(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func answer(content []byte, client, server net.Addr) string {
	return fmt.Sprintf("%x %v %v", sha256.Sum256(content), client, server)
}

func serve(connection net.Conn) {
	content, err := io.ReadAll(connection)
	check(err)
	_, err = io.WriteString(connection, answer(content, connection.RemoteAddr(), connection.LocalAddr()))
	check(err)
	check(connection.Close())
}

func ask(to string, number int, done chan bool) {
	connection, err := net.Dial("tcp", to)
	check(err)
	content := make([]byte, 1<<20+number)
	for at := range content {
		content[at] = byte(at*7 + at>>8*13 + number)
	}
	_, err = connection.Write(content)
	check(err)
	check(connection.(*net.TCPConn).CloseWrite())
	got, err := io.ReadAll(connection)
	check(err)
	done <- string(got) == answer(content, connection.LocalAddr(), connection.RemoteAddr())
}

func main() {
	if os.Args[1] == "serve" {
		listener, err := net.Listen("tcp", os.Args[2])
		check(err)
		fmt.Println("listens")
		for {
			connection, err := listener.Accept()
			check(err)
			go serve(connection)
		}
	}
	done := make(chan bool)
	for number := 0; number < clients; number++ {
		go ask(os.Args[2], number, done)
	}
	for number := 0; number < clients; number++ {
		fmt.Println("the same:", <-done)
	}
}
