import { defineConfig } from 'vitest/config'

const SERVER = ['test/support/global-setup.ts']

/** Only what needs a server starts one: `npx vitest run --project unit` needs no Postgres. */
export default defineConfig({
  test: {
    reporters: ['default', './test/support/reporter.ts'],
    pool: 'forks',
    maxWorkers: 3,
    testTimeout: 60_000,
    hookTimeout: 60_000,
    projects: [
      { extends: true, test: { name: 'unit', include: ['test/unit/**/*.test.ts'] } },
      {
        extends: true,
        test: {
          name: 'types',
          include: [],
          typecheck: { enabled: true, only: true, include: ['test/types/*.test.ts'], tsconfig: 'tsconfig.json' },
        },
      },
      { extends: true, test: { name: 'db', include: ['test/db/**/*.test.ts'], globalSetup: SERVER } },
      { extends: true, test: { name: 'package', include: ['test/package/*.test.ts'], globalSetup: SERVER } },
    ],
  },
})
