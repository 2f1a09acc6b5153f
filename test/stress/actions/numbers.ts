import { countWithin } from '../../../src/numbers'
import { type Action, statement, type Writer } from '../action'
import { StressNumbered } from '../entities'
import type { Random } from '../random'

const TABLE = '"stress numbered"'
const SCOPES = 4

const anyScope = (random: Random): number => 1 + random.int(SCOPES)

/** One row in so many, so that none of the scopes grows for ever. */
const some = (random: Random, of: number): string => `id % ${of} = ${random.int(of)} AND tenant = ${anyScope(random)}`

const onNumbers = (name: string, weight: number, sql: (random: Random) => string): Action =>
  statement(`numbers: ${name}`, weight, (_subject, random) => sql(random))

/** Writes to a table of its own, whose numbers and counts the checker looks at. */
export const numberActions: readonly Action[] = [
  onNumbers('INSERT', 2, (random) => `INSERT INTO ${TABLE} (tenant) VALUES (${anyScope(random)})`),
  onNumbers(
    'INSERT of several',
    1,
    (random) =>
      `INSERT INTO ${TABLE} (tenant) SELECT ${anyScope(random)} FROM pg_catalog.generate_series(1, ${1 + random.int(9)})`,
  ),
  onNumbers(
    'DELETE of the newest',
    1,
    (random) =>
      `DELETE FROM ${TABLE} WHERE id = (SELECT id FROM ${TABLE} WHERE tenant = ${anyScope(random)} ORDER BY number DESC LIMIT 1)`,
  ),
  onNumbers(
    'DELETE of the oldest',
    1,
    (random) =>
      `DELETE FROM ${TABLE} WHERE id = (SELECT id FROM ${TABLE} WHERE tenant = ${anyScope(random)} ORDER BY number LIMIT 1)`,
  ),
  onNumbers('DELETE of some', 1, (random) => `DELETE FROM ${TABLE} WHERE ${some(random, 3)}`),
  onNumbers('DELETE of a scope', 0.3, (random) => `DELETE FROM ${TABLE} WHERE tenant = ${anyScope(random)}`),
  onNumbers('soft delete', 1, (random) => `UPDATE ${TABLE} SET "deletedAt" = now() WHERE ${some(random, 3)}`),
  onNumbers('restore', 1, (random) => `UPDATE ${TABLE} SET "deletedAt" = NULL WHERE ${some(random, 2)}`),
  onNumbers('move', 1, (random) => `UPDATE ${TABLE} SET tenant = ${anyScope(random)} WHERE ${some(random, 5)}`),
  onNumbers('TRUNCATE', 0.05, () => `TRUNCATE ${TABLE}`),
  { name: 'numbers: save and count', weight: 1, expected: ['TRANSACTION_ABORTED'], run: saveAndCount },
]

async function saveAndCount({ manager, random, journal, client }: Writer): Promise<void> {
  const tenant = anyScope(random)
  const { number } = await manager.save(manager.create(StressNumbered, { tenant }))
  if (!(number >= 1)) journal.violate(`client ${client}: a row was saved without a number`)
  if ((await countWithin(manager, StressNumbered, { tenant })) < 0) journal.violate('a count is negative')
}
