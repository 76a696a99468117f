/** JSON as a person edits it. */
export const textOf = (mapping: object) => JSON.stringify(mapping, null, 2);

/** Reads a mapping from JSON. Whether it is a valid one is the server's to say. */
export function read<M extends object>(text: string): { mapping?: M; error?: string } {
  try {
    const mapping: unknown = JSON.parse(text);
    if (typeof mapping === 'object' && mapping !== null && !Array.isArray(mapping))
      return { mapping: mapping as M };
    return { error: 'must be a JSON object, in braces' };
  } catch (error) {
    return { error: `is not JSON: ${(error as Error).message}` };
  }
}
