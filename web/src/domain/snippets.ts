import type { Check } from '~/api/types';

/** A check as programs send it. The key is read from the environment: code is shared, keys are not. */
export const languages = [
  { value: 'curl', label: 'curl' },
  { value: 'go', label: 'Go' },
  { value: 'python', label: 'Python' },
  { value: 'javascript', label: 'JavaScript' },
] as const;
export type Language = (typeof languages)[number]['value'];

/** The environment variable that the snippets read the API key from. */
export const keyVariable = 'SLUICE_KEY';

/** Stands for the check endpoint's address while nobody has told it: it is not the address of this page. */
export const unknownCheckUrl = 'https://CHECK-ENDPOINT';

export function snippet(language: Language, url: string, check: Check): string {
  return { curl, go, python, javascript }[language](`${url.replace(/\/+$/, '')}/v1/check`, check);
}

/** curl with a key in it, to paste. */
export function curlWith(key: string, url: string, check: Check): string {
  return curl(`${url.replace(/\/+$/, '')}/v1/check`, check, `'Authorization: Bearer ${key}'`);
}

function curl(url: string, check: Check, authorization = `"Authorization: Bearer $${keyVariable}"`): string {
  return [
    `curl -i ${shell(url)} \\`,
    `  -H ${authorization} \\`,
    `  -H 'Content-Type: application/json' \\`,
    `  -d ${shell(JSON.stringify(check))}`,
  ].join('\n');
}

/** In single quotes, where a shell reads nothing but the quote itself. */
function shell(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

function go(url: string, check: Check): string {
  const json = JSON.stringify(check);
  const literal = json.includes('`') ? JSON.stringify(json) : `\`${json}\``;
  return `package main

import (
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
)

func main() {
	body := strings.NewReader(${literal})
	req, err := http.NewRequest(http.MethodPost, ${JSON.stringify(url)}, body)
	if err != nil {
		log.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+os.Getenv("${keyVariable}"))
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		log.Fatal(err) // no answer: decide whether your service passes or refuses
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusTooManyRequests {
		fmt.Println("wait", res.Header.Get("Retry-After"), "s")
		return
	}
	fmt.Println("status", res.StatusCode)
}
`;
}

function python(url: string, check: Check): string {
  // What JSON.stringify makes of texts, numbers and objects of them reads the same in Python.
  return `import os
import requests

answer = requests.post(
    ${JSON.stringify(url)},
    headers={"Authorization": f"Bearer {os.environ['${keyVariable}']}"},
    json=${indented(check, 4)},
    timeout=1,
)
if answer.status_code == 429:
    print("wait", answer.headers.get("Retry-After"), "s")
else:
    print("status", answer.status_code)
`;
}

function javascript(url: string, check: Check): string {
  return `const answer = await fetch(${JSON.stringify(url)}, {
  method: 'POST',
  headers: {
    Authorization: \`Bearer \${process.env.${keyVariable}}\`,
    'Content-Type': 'application/json',
  },
  body: JSON.stringify(${indented(check, 2)}),
});
if (answer.status === 429) {
  console.log('wait', answer.headers.get('Retry-After'), 's');
} else {
  console.log('status', answer.status);
}
`;
}

function indented(check: Check, by: number): string {
  return JSON.stringify(check, null, by === 4 ? 4 : 2).replaceAll('\n', `\n${' '.repeat(by)}`);
}
