import { defineConfig } from 'vitest/config'

/** For mutation testing, which knows no projects, and changes the sources that the tests of the repository's shape read. */
export default defineConfig({
  test: {
    include: ['test/unit/*/**/*.test.ts'],
    setupFiles: ['test/unit/short-properties.ts'],
    // They take seconds, and find what the others find.
    testNamePattern: /^(?!.*(?:linear|a million|every code point|real URLs))/u,
  },
})
