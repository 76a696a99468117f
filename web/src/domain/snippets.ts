import type { Check } from '~/api/types';

/** The key is read from the environment: code is shared, keys are not. */
export const languages = [
  { value: 'curl', label: 'curl' },
  { value: 'go', label: 'Go' },
  { value: 'python', label: 'Python' },
  { value: 'typescript', label: 'TypeScript' },
] as const;
export type Language = (typeof languages)[number]['value'];

export const proxies = [
  { value: 'nginx', label: 'nginx' },
  { value: 'caddy', label: 'Caddy' },
  { value: 'haproxy', label: 'HAProxy' },
  { value: 'envoy', label: 'Envoy' },
] as const;
export type ProxyName = (typeof proxies)[number]['value'];

export const keyVariable = 'SLUICE_KEY';

/** The check endpoint has another address than this page. */
export const unknownCheckUrl = 'https://CHECK-ENDPOINT';

export function snippet(language: Language, url: string, check: Check): string {
  return { curl, go, python, typescript }[language](url.replace(/\/+$/, ''), check);
}

export function curlWith(key: string, url: string, check: Check): string {
  return curl(url.replace(/\/+$/, ''), check, `'Authorization: Bearer ${key}'`);
}

function curl(url: string, check: Check, authorization = `"Authorization: Bearer $${keyVariable}"`): string {
  return [
    `curl -i ${shell(`${url}/v1/check`)} \\`,
    `  -H ${authorization} \\`,
    `  -H 'Content-Type: application/json' \\`,
    `  -d ${shell(JSON.stringify(check))}`,
  ].join('\n');
}

function shell(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** A string of JSON is one of Go, Python and TypeScript. */
const quote = (text: string | number) => JSON.stringify(String(text));

function go(url: string, check: Check): string {
  const { user_id, plan, endpoint, method, ip, attributes = {} } = check;
  const { cost, others } = costsOf(check);
  const fields: [string, string][] = [];
  for (const [name, value] of Object.entries({
    UserID: user_id,
    Plan: plan,
    Endpoint: endpoint,
    Method: method,
    IP: ip,
  })) {
    if (value !== undefined) fields.push([name, quote(value)]);
  }
  if (cost === 0 && Object.keys(others).length === 0) fields.push(['Look', 'true']);
  else if (cost !== 1) fields.push(['Cost', String(cost)]);
  const priced = Object.entries(others).map(([meter, amount]) => `${quote(meter)}: ${amount}`);
  if (priced.length > 0) fields.push(['Costs', `map[string]float64{${priced.join(', ')}}`]);
  const named = Object.entries(attributes).map(([name, value]) => `${quote(name)}: ${quote(value)}`);
  if (named.length > 0) fields.push(['Attributes', `map[string]string{${named.join(', ')}}`]);
  const longest = Math.max(...fields.map(([name]) => name.length)); // values stand in a column, as gofmt has them
  const lines = fields.map(([name, value]) => `\t\t${`${name}:`.padEnd(longest + 1)} ${value},\n`);
  const fieldsText = lines.length > 0 ? `\n${lines.join('')}\t` : '';
  return `// Command check asks Sluice whether a request may pass.
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
		URL: ${quote(url)},
		Key: os.Getenv("${keyVariable}"),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer limits.Close()
	decision, err := limits.Check(context.Background(), sluice.Check{${fieldsText}})
	if err != nil {
		log.Fatal(err) // the check is not valid
	}
	if decision.Allowed {
		fmt.Println("allowed")
	} else {
		fmt.Println("denied, wait", decision.RetryAfter)
	}
}
`;
}

/** The fields of a check, with their values as JSON, which is Python and TypeScript as well. */
function fieldsOf(check: Check): [name: string, value: string][] {
  const { user_id, plan, endpoint, method, ip, attributes } = check;
  const { cost, others } = costsOf(check);
  const texts = Object.entries({ user_id, plan, endpoint, method, ip }).filter(([, text]) => text !== undefined);
  const maps = Object.entries({ costs: others, attributes }).filter(([, map]) => Object.keys(map ?? {}).length > 0);
  return [
    ...texts.map(([name, text]): [string, string] => [name, quote(String(text))]),
    ...(cost === 1 ? [] : [['cost', String(cost)] as [string, string]]),
    ...maps.map(([name, map]): [string, string] => [name, JSON.stringify(map)]),
  ];
}

function python(url: string, check: Check): string {
  const fields = fieldsOf(check).map(([name, value]) => `${name}=${value}`);
  return `import os

# pip install PATH/TO/CHECKOUT/clients/python
from sluice import Check, Sluice

# One for the whole process.
limits = Sluice(${quote(url)}, os.environ["${keyVariable}"])
decision = limits.check(Check(${listed(fields, 4, '')}))
if decision.allowed:
    print("allowed")
else:
    print("denied, wait", decision.retry_after, "s")
`;
}

function typescript(url: string, check: Check): string {
  const fields = fieldsOf(check).map(([name, value]) => `${name === 'user_id' ? 'userId' : name}: ${value}`);
  return `import { Sluice } from '@sluicegate/client'; // npm install PATH/TO/sluicegate-client-0.1.0.tgz

// One for the whole process.
const limits = new Sluice({ url: ${quote(url)}, key: process.env.${keyVariable} ?? '' });
const decision = await limits.check({${listed(fields, 2, ' ')}});
if (decision.allowed) {
  console.log('allowed');
} else {
  console.log('denied, wait', decision.retryAfterMs, 'ms');
}
`;
}

function costsOf({ cost = 1, costs = {} }: Check) {
  const { requests = cost, ...others } = costs;
  return { cost: requests, others };
}

function listed(fields: string[], indent: number, space: string): string {
  if (fields.length < 2) return fields.map((field) => space + field + space).join('');
  return `\n${fields.map((field) => `${' '.repeat(indent)}${field},\n`).join('')}`;
}
