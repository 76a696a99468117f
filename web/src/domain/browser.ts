export function browserOf(userAgent: string): string {
  const browser = first(userAgent, [
    [/Edg\//, 'Edge'],
    [/OPR\//, 'Opera'],
    [/Firefox\//, 'Firefox'],
    [/Chrom(e|ium)\//, 'Chrome'], // after those that call themselves Chrome too
    [/Safari\//, 'Safari'],
    [/^curl\//, 'curl'],
  ]);
  const system = first(userAgent, [
    [/iPhone|iPad/, 'iOS'],
    [/Android/, 'Android'],
    [/Mac OS X/, 'macOS'],
    [/Windows/, 'Windows'],
    [/Linux/, 'Linux'],
  ]);
  if (!browser) return userAgent.slice(0, 60) || 'An unknown browser';
  return system ? `${browser} on ${system}` : browser;
}

function first(text: string, names: [RegExp, string][]): string | undefined {
  return names.find(([pattern]) => pattern.test(text))?.[1];
}
