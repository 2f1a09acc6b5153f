import { accessSync } from 'node:fs'
import path from 'node:path'
import { defineConfig } from 'vitest/config'

const SERVER = ['test/support/global-setup.ts']
const OF_A_SERVER = ['test/db/**/*.test.ts', 'test/package/*.test.ts']

/**
 * Tests that need a server and that `npm test` runs, with those of `test/unit` and `test/types`: what convinces within
 * four minutes on two cores. Any other file runs in `npm run test:rest`, a new one too.
 */
const CORE = [
  // The calls.
  'test/db/calls/find-or-create.test.ts',
  'test/db/calls/attempts.test.ts',
  'test/db/calls/bad-input.test.ts',
  'test/db/calls/bad-rows.test.ts',
  'test/db/calls/caller-transaction.test.ts',
  'test/db/calls/collisions.test.ts',
  'test/db/typeorm/conditions.test.ts',
  'test/db/calls/create-values.test.ts',
  'test/db/calls/deleted-rows.test.ts',
  'test/db/calls/entity-features.test.ts',
  'test/db/calls/ignore-deleted.test.ts',
  'test/db/calls/insert-or-fail.test.ts',
  'test/db/calls/look-ups.test.ts',
  'test/db/calls/methods.test.ts',
  'test/db/calls/nested.test.ts',
  'test/db/connection/other-drivers.test.ts',
  'test/db/calls/racing-calls.test.ts',
  'test/db/calls/racing-writes.test.ts',
  'test/db/typeorm/saved-texts.test.ts',
  'test/db/typeorm/stored-texts.test.ts',
  'test/db/calls/transactions.test.ts',
  'test/db/calls/two-texts.test.ts',
  'test/db/calls/update-or-fail.test.ts',
  'test/db/calls/upsert.test.ts',
  'test/db/url/url.test.ts',
  // Migrations, and what is compared with the database.
  'test/db/typeorm/attached.test.ts',
  'test/db/schema/drift.test.ts',
  'test/db/schema/generated-migration.test.ts',
  'test/db/schema/guard-catalog.test.ts',
  'test/db/schema/migration.test.ts',
  'test/db/schema/readiness.test.ts',
  'test/db/schema/schema.test.ts',
  // The guard, and every race at one isolation level.
  'test/db/guard/interleavings.test.ts',
  'test/db/guard/mutations.test.ts',
  'test/db/guard/own-triggers.test.ts',
  'test/db/guard/roles.test.ts',
  'test/db/guard/rules.test.ts',
  'test/db/guard/second-line.test.ts',
  'test/db/guard/soft-deletes.test.ts',
  'test/db/guard/writers.test.ts',
  'test/db/stress/stress.test.ts',
  // Names, tokens, numbers.
  'test/db/names/interleavings.test.ts',
  'test/db/names/names.test.ts',
  'test/db/names/races.test.ts',
  'test/db/numbers/interleavings.test.ts',
  'test/db/numbers/placing.test.ts',
  'test/db/numbers/tables.test.ts',
  'test/db/once/answers.test.ts',
  'test/db/once/once.test.ts',
  'test/db/once/races.test.ts',
  'test/db/once/transactions.test.ts',
  // What is published, as a user installs it.
  'test/package/readme.test.ts',
]

// A file that was renamed must not leave them unnoticed.
for (const file of CORE) accessSync(path.join(import.meta.dirname, file))

/**
 * A worker that keeps its modules loads TypeORM once, and not for each file. All entities of a worker's files make
 * TypeORM slower, so that more files than these would lose by it.
 */
const KEPT = { isolate: false }

/** Only what needs a server starts one: `npx vitest run --project unit` needs no Postgres. */
export default defineConfig(({ mode }) => ({
  test: {
    // See test/support/gate-part.ts.
    env: mode === 'all' ? { TEST_ALL: 'yes' } : {},
    reporters: ['default', './test/support/reporter.ts'],
    pool: 'forks',
    maxWorkers: 3,
    testTimeout: 60_000,
    hookTimeout: 60_000,
    projects: [
      { extends: true, test: { name: 'unit', ...KEPT, include: ['test/unit/**/*.test.ts'] } },
      {
        extends: true,
        test: {
          name: 'types',
          include: [],
          typecheck: {
            enabled: true,
            only: true,
            include: ['test/types/*.test.ts'],
            tsconfig: 'test/types/tsconfig.json',
          },
        },
      },
      { extends: true, test: { name: 'core', ...KEPT, include: CORE, globalSetup: SERVER } },
      { extends: true, test: { name: 'rest', include: OF_A_SERVER, exclude: CORE, globalSetup: SERVER } },
    ],
  },
}))
