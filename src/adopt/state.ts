import type { Query } from '../sql/catalog'
import { qualified, quote } from '../sql/identifier'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { textRules } from '../sql/text-table'
import type { AdoptStep } from './options'
import type { AdoptSession } from './session'
import { type AdoptedTable, ADOPTIONS, FIND_KEPT, ownAlone, refuseForeign, type Wanted } from './table'

/** The adoptions of the table's schema, as SQL. */
export const adoptions = ({ table }: AdoptedTable): string => qualified(table.schema, ADOPTIONS)

/** Makes the table in which adoptions of the schema store their states. */
export const createAdoptions = (on: AdoptedTable): string[] => [
  refuseForeign(
    on,
    ADOPTIONS,
    `CREATE TABLE ${adoptions(on)} (guard pg_catalog.text PRIMARY KEY, state pg_catalog.jsonb NOT NULL)`,
  ),
  ownAlone(on, [adoptions(on)], 'readable'),
]

export async function forgetState({ query }: AdoptSession, on: AdoptedTable): Promise<void> {
  await query(`DELETE FROM ${adoptions(on)} AS a WHERE a.guard OPERATOR(pg_catalog.=) $1::pg_catalog.text`, [
    on.table.guard,
  ])
}

/** The state of an adoption, as the database stores it. */
export interface AdoptionState {
  readonly step: AdoptStep
  /** See `rulesOf`. */
  readonly rules: string
  readonly wanted: Wanted
  readonly page: number
  readonly pages: number | null
  /** Whether a guard exists and rows are normalized under it. @default false */
  readonly renormalizes?: boolean
}

/** Runs the last statements of a command, and deletes its stored state, under one lock. */
export async function finishWork(
  session: AdoptSession,
  on: AdoptedTable,
  step: AdoptStep | 'abandon',
  statements: readonly string[],
): Promise<void> {
  await session.locked({ on, step, mode: 'ACCESS EXCLUSIVE' }, async () => {
    await session.all(statements)
    await forgetState(session, on)
  })
}

/**
 * Reads the state of an adoption.
 *
 * @returns undefined if none has begun, or the role may not read it
 */
export async function storedState(query: Query, on: AdoptedTable): Promise<AdoptionState | undefined> {
  const [kept] = (await query(FIND_KEPT, [adoptions(on), quote(on.owner)])) as readonly { kept: boolean }[]
  if (kept?.kept !== true) return undefined
  try {
    const [row] = (await query(
      `SELECT a.state::pg_catalog.text AS state FROM ${adoptions(on)} AS a WHERE a.guard OPERATOR(pg_catalog.=) $1::pg_catalog.text`,
      [on.table.guard],
    )) as readonly { state: string }[]
    return row && (JSON.parse(row.state) as AdoptionState)
  } catch (error) {
    if (serverError(error)?.code === SQLSTATE.insufficientPrivilege) return undefined
    throw error
  }
}

/** What the stored rows depend on. An adoption that began with other rules cannot continue. */
export const rulesOf = ({ table }: AdoptedTable): string =>
  JSON.stringify([textRules(table, table.digest.name), table.deleted, table.normalizers])

/** Records in the database that the work has begun. */
export async function beginState(session: AdoptSession, on: AdoptedTable, more: object = {}): Promise<void> {
  await session.make('begin', createAdoptions(on))
  await goOn(session, on, 'begin', { rules: rulesOf(on), ...more })
}

/** Stores the next step in the database. */
export async function goOn(
  session: AdoptSession,
  on: AdoptedTable,
  step: AdoptStep,
  more: object = {},
): Promise<AdoptStep> {
  await session.query(
    `INSERT INTO ${adoptions(on)} AS a (guard, state) VALUES ($1::pg_catalog.text, $2::pg_catalog.jsonb)
ON CONFLICT (guard) DO UPDATE SET state = a.state OPERATOR(pg_catalog.||) excluded.state`,
    [on.table.guard, JSON.stringify({ step, ...more })],
  )
  return step
}
