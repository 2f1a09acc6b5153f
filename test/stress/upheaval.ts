import { setTimeout as sleep } from 'node:timers/promises'
import type { Client } from 'pg'
import { Column, DataSource, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { UniqueText } from '../../src'
import type { WantedDeclaration } from '../../src/triggers/attached'
import { guardOf } from '../../src/triggers/guard'
import { quote } from '../../src/sql/identifier'
import { scopesTable } from '../../src/sql/numbers'
import { numberOf } from '../../src/numbers/sql/declared'
import { trim } from '../../src/text'
import { fewHashes } from '../support/digests'
import { generate } from '../support/generated'
import { install } from '../support/releases'
import { tableName } from '../../src/sql/text-table'
import { NUMBERED } from './checker'
import { StressPage } from './entities'
import type { Journal } from './journal'
import type { Random } from './random'
import type { Subject } from './subject'

/** What changes the tables under those who write. */
export interface Upheaval {
  readonly url: string
  readonly client: Client
  readonly journal: Journal
  readonly random: Random
}

const WHILE_MILLISECONDS = 500
/** A table that holds a text twice is refused for ever. */
const MOST_TRIES = 20

/** All or nothing; false where others were in the way for too long. */
async function attempt(
  { client, journal }: Upheaval,
  what: string,
  ...statements: readonly string[]
): Promise<boolean> {
  try {
    await client.query(['BEGIN', ...statements, 'COMMIT'].join(';\n'))
    journal.add(what)
    return true
  } catch {
    await client.query('ROLLBACK')
    journal.add(`${what} given up`)
    return false
  }
}

/** Another name for a table, whose own is taken by a view of it; or for columns, of which one gets that of another. */
export async function renameForAWhile({ relation, table }: Subject, upheaval: Upheaval): Promise<void> {
  const { journal, random, client } = upheaval
  const moved = quote(`moved ${table.table}`)
  const swap = (one: string, other: string): string[] => [
    `ALTER TABLE ${relation} RENAME COLUMN ${quote(one)} TO "of another"`,
    `ALTER TABLE ${relation} RENAME COLUMN ${quote(other)} TO ${quote(one)}`,
    `ALTER TABLE ${relation} RENAME COLUMN "of another" TO ${quote(other)}`,
  ]
  const [what, there, back] = random.pick([
    [
      'tables renamed',
      [`ALTER TABLE ${relation} RENAME TO ${moved}`, `CREATE VIEW ${relation} AS SELECT * FROM ${moved}`],
      [`DROP VIEW ${relation}`, `ALTER TABLE ${moved} RENAME TO ${quote(table.table)}`],
    ],
    ['columns renamed', swap('text', 'note'), swap('text', 'note')],
    ['columns renamed', swap(table.number, 'id'), swap(table.number, 'id')],
    [
      'columns renamed',
      [`ALTER TABLE ${relation} RENAME COLUMN ${quote(table.hash)} TO moved`],
      [`ALTER TABLE ${relation} RENAME COLUMN moved TO ${quote(table.hash)}`],
    ],
  ] as const)
  await journal.alone(async () => {
    await client.query(`SET lock_timeout = '200ms'`)
    if (!(await attempt(upheaval, what, ...there))) return
    await sleep(random.int(WHILE_MILLISECONDS))
    await client.query('SET lock_timeout = 0')
    while (!(await attempt(upheaval, `${what} back`, ...back)));
  })
}

const wantedOn = ({ table }: Subject): WantedDeclaration[] => [guardOf(table), numberOf(NUMBERED)]

/** Each table for itself, so that both kernels serve at once. */
export async function changeRelease(subject: Subject, upheaval: Upheaval): Promise<void> {
  const { random } = upheaval
  const release = random.pick(['this', 'next'] as const)
  await attempt(
    upheaval,
    release === 'next' ? 'later releases installed' : 'releases put back',
    ...install(random.pick(wantedOn(subject)), release),
  )
}

export async function restoreReleases(subjects: readonly Subject[], upheaval: Upheaval): Promise<void> {
  for (const one of subjects.flatMap(wantedOn)) {
    while (!(await attempt(upheaval, 'releases put back', ...install(one, 'this'))));
  }
}

@Entity('stress page')
class PageOfMore {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText({ normalize: trim(), digest: fewHashes(4), maxChainLength: 90 }) text!: string
  @Column({ type: 'text', nullable: true }) note!: string | null
  @Column({ type: 'text', nullable: true }) more!: string | null
}

@Entity('stress page')
class PageOfPerhaps {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText({ normalize: trim(), digest: fewHashes(4), nullable: true }) text!: string | null
  @Column({ type: 'text', nullable: true }) note!: string | null
}

const VERSIONS = [StressPage, PageOfMore, PageOfPerhaps] as const

/** What `migration:generate` writes, statement by statement, with the others writing in between. */
async function migrate(entity: Function, { url, journal }: Upheaval, settings: string): Promise<boolean> {
  const dataSource = new DataSource({ type: 'postgres', url, entities: [entity], extra: { options: settings } })
  await dataSource.initialize()
  try {
    const { up } = await generate(dataSource)
    for (const statement of up) await dataSource.query(statement)
    journal.add('migrations without a transaction')
    return true
  } catch {
    journal.add('migrations given up half-way')
    return false
  } finally {
    await dataSource.destroy()
  }
}

export async function migrateInPieces(upheaval: Upheaval): Promise<void> {
  await migrate(upheaval.random.pick(VERSIONS), upheaval, String.raw`-c lock_timeout=500ms -c statement_timeout=30s`)
}

export async function restoreColumns(upheaval: Upheaval): Promise<void> {
  for (let tries = 0; tries < MOST_TRIES; tries += 1) {
    if (await migrate(StressPage, upheaval, '-c statement_timeout=60s')) return
  }
  upheaval.journal.violate('the columns could not be put back')
}

/**
 * Rows go and come back in another order, as by `pg_dump --data-only`. With the triggers on, chains are numbered anew, and
 * counts are refused as a whole; with them off, everything is as it was.
 */
export async function restoreData({ relation, table }: Subject, upheaval: Upheaval): Promise<void> {
  const { random } = upheaval
  const disabled = random.chance(0.5)
  const tables = random.chance(0.2) ? [tableName(NUMBERED), scopesTable(NUMBERED)] : [relation]
  await attempt(
    upheaval,
    disabled ? 'data restored' : 'data restored with the triggers on',
    ...tables.flatMap((one, index) => restoreOf(one, `dumped ${index}`, disabled ? [] : [table.number, table.chained])),
  )
}

/** Of a table that others refer to: without triggers its rows go and leave the references. */
function restoreOf(table: string, name: string, anew: readonly string[]): string[] {
  const dumped = quote(name)
  const disabled = anew.length === 0
  const rowOf = (row: string): string => `to_jsonb(${row}) - '{${anew.map(quote).join(',')}}'::text[]`
  const statements = [
    `DELETE FROM ${table}`,
    `INSERT INTO ${table} OVERRIDING SYSTEM VALUE SELECT * FROM ${dumped} ORDER BY random()`,
    `DO $$ BEGIN
       IF EXISTS (SELECT FROM ${table} FULL JOIN ${dumped} AS d ON ${rowOf('d')} = ${rowOf(table)} WHERE d IS NULL)
         OR (SELECT count(*) FROM ${table}) <> (SELECT count(*) FROM ${dumped})
       THEN RAISE EXCEPTION 'rows differ';
       END IF;
     END $$`,
  ]
  return [
    `LOCK TABLE ${table} IN ACCESS EXCLUSIVE MODE`,
    `CREATE TEMPORARY TABLE ${dumped} ON COMMIT DROP AS SELECT * FROM ${table}`,
    ...(disabled
      ? [`ALTER TABLE ${table} DISABLE TRIGGER ALL`, ...statements, `ALTER TABLE ${table} ENABLE TRIGGER ALL`]
      : statements),
  ]
}
