// Command check asks Sluice whether a request may pass.
// Its client: go mod edit -replace github.com/sluicegate/sluice=PATH/TO/CHECKOUT
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	sluice "github.com/sluicegate/sluice/client"
)

func main() {
	limits, err := sluice.New(sluice.Config{ // one for the whole process
		URL: "http://127.0.0.1:8080",
		Key: os.Getenv("SLUICE_KEY"),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer limits.Close()
	decision, err := limits.Check(context.Background(), sluice.Check{
		UserID:     "it's \"42\" `here` $HOME \\ \n é 𝕏",
		Plan:       "pro",
		Endpoint:   "/api/reports",
		Method:     "GET",
		IP:         "203.0.113.9",
		Cost:       2.5,
		Attributes: map[string]string{"org": "it's \"42\" `here` $HOME \\ \n é 𝕏", "size": "l"},
	})
	if err != nil {
		log.Fatal(err) // the check is not valid
	}
	if decision.Allowed {
		fmt.Println("allowed")
	} else {
		fmt.Println("denied, wait", decision.RetryAfter)
	}
}
