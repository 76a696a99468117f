/** The version of this client, which it names in its User-Agent; a test holds it equal to package.json's. */
export const version = '0.1.0';
