// Command reference writes the configuration reference and the example file.
package main

import (
	"log"
	"os"

	"github.com/hawserfs/hawser/conf"
)

func main() {
	for i, text := range []string{conf.Reference(), conf.YAML(conf.Default())} {
		if err := os.WriteFile(os.Args[1+i], []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
