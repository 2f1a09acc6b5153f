import type { DataSource } from 'typeorm'
import { plainName, quote } from '../../src/sql/identifier'
import { tableName } from '../../src/sql/text-table'
import { violations } from '../support/guarded-table'
import { countedTable, wrongCounts } from '../support/numbered-table'
import { onceViolations } from './actions/once'
import type { NumberTable } from '../../src/sql/numbers'
import type { Journal } from './journal'
import type { RawClient } from './action'
import type { Subject } from './subject'

/** Looks again and again, on a connection of its own, until nobody writes any more; and then once more. */
export async function watch(dataSource: DataSource, subjects: readonly Subject[], journal: Journal): Promise<void> {
  const queryRunner = dataSource.createQueryRunner()
  try {
    const raw = (await queryRunner.connect()) as RawClient
    await raw.query(`SET application_name = 'unique-text-checker'`)
    while (journal.running) {
      await journal.alone(async () => {
        await check(raw, subjects, journal)
      })
    }
  } finally {
    await queryRunner.release()
  }
}

/** One look at all tables in one snapshot. */
export async function check(raw: RawClient, subjects: readonly Subject[], journal: Journal): Promise<void> {
  await raw.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY')
  // Before the snapshot: TRUNCATE knows none, and a later one would show no rows beside the counts that they had.
  await raw.query(`LOCK TABLE ${tableName(NUMBERED)} IN ACCESS SHARE MODE`)
  for (const subject of subjects) {
    for (const violation of await violations(raw, subject.table)) {
      journal.violate(`${subject.table.table}: ${violation}`)
    }
    await measure(raw, subject, journal)
  }
  await checkNumbers(raw, journal)
  for (const violation of await onceViolations(raw)) journal.violate(`once: ${violation}`)
  await raw.query('COMMIT')
  journal.add('looks of the checker')
}

/** How long the chains are that all this is about. */
async function measure(raw: RawClient, subject: Subject, journal: Journal): Promise<void> {
  const by = [...subject.table.scope, subject.table.hash].map(quote).join(', ')
  const { rows } = await raw.query<{ rows: number; longest: number; highest: number }>(
    `SELECT coalesce(sum(n), 0)::int AS "rows", coalesce(max(n), 0)::int AS longest, coalesce(max(m), 0)::int AS highest
       FROM (SELECT count(*) AS n, max(${quote(subject.table.number)}) AS m FROM ${subject.relation} GROUP BY ${by}) AS chains`,
  )
  for (const found of rows) {
    journal.add('rows seen', found.rows)
    journal.highest('longest chain', found.longest)
    journal.highest('highest number', found.highest)
  }
}

export const NUMBERED: NumberTable = countedTable({
  table: 'stress numbered',
  triggers: plainName('numbers', 'stress numbered', 'number'),
})

/** The count of each scope is that of its rows. That no two have one number, the index says. */
async function checkNumbers(raw: RawClient, journal: Journal): Promise<void> {
  for (const wrong of await wrongCounts(raw, NUMBERED)) journal.violate(`the count of a scope is wrong: ${wrong}`)
}
