import { expect, test } from 'vitest'
import { lockTables } from '../../../src/sql/alter'

test.each([
  ['an index', 'DROP INDEX "mine"', 'CREATE INDEX "mine" ON "team" ("slug")'],
  [
    'a foreign key',
    'ALTER TABLE "account" DROP CONSTRAINT "mine"',
    'ALTER TABLE "account" ADD CONSTRAINT "mine" FOREIGN KEY ("teamId") REFERENCES "team"("id")',
  ],
])(
  'readers leave the table of %s that goes before any statement, though the statement does not name it',
  (_, up, down) => {
    const statements = ['ALTER TABLE "page" ADD "n" integer', up]
    const inverse = [down, 'ALTER TABLE "page" DROP COLUMN "n"']
    expect(lockTables(statements, inverse)).toEqual([expect.stringContaining(`'"team" IN ACCESS EXCLUSIVE'`)])
    expect(lockTables([down], [up]).join()).not.toContain(`'"team" IN ACCESS EXCLUSIVE'`)
  },
)
