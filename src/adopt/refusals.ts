import type { ObjectLiteral } from 'typeorm'
import { TextRejectedError } from '../errors'
import type { ColumnMetadata, Declaration } from '../registry/registry'
import { findDrift } from '../schema/readiness'
import type { Query } from '../sql/catalog'
import { quote } from '../sql/identifier'
import { isElsewhere } from '../sql/spread'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { field, tableName } from '../sql/text-table'
import { normalizeText } from '../text/normalizer'
import { parseRows } from './exact-json'
import { AdoptionError } from './session'
import { type Adopting, type AdoptionFacts, keyAsJson, own } from './table'
import type { Target } from './target'

/** The number of rows, or groups of rows, whose keys a report or an error has. */
export const KEYS_NAMED = 10

/**
 * @param todo the advice, a sentence
 * @throws AdoptionError with the keys of the first rows with NULL in one of the columns
 */
export async function refuseNullRows(
  query: Query,
  on: Adopting,
  columns: readonly string[],
  todo: string,
): Promise<void> {
  for (const column of columns) {
    const rows = (await query(
      `SELECT ${keyAsJson(on)}::pg_catalog.text AS key FROM ${own(on)} WHERE ${field('t', column)} IS NULL LIMIT ${KEYS_NAMED}`,
    )) as readonly { key: string }[]
    if (rows.length === 0) continue
    throw new AdoptionError(
      'nulls',
      `Rows of ${tableName(on.table)} hold NULL in ${quote(column)}. ${todo} --json prints the keys of the first.`,
      undefined,
      rows.map(({ key }) => parseRows(key, 1) as ObjectLiteral),
    )
  }
}

/**
 * Refuses tables that the steps of an adoption cannot handle. To read or abandon such a table is allowed.
 *
 * @param isDistributed whether Citus keeps the rows where the steps cannot run
 * @throws AdoptionError
 */
export function requireAdoptable(
  facts: AdoptionFacts,
  relation: string,
  isDistributed: boolean = isElsewhere(facts.distribution),
): void {
  const obstacle = obstacleOf(facts, isDistributed)
  if (obstacle !== undefined) throw new AdoptionError('unsupported', `${relation} cannot be adopted: ${obstacle}`)
}

/** Returns why the steps cannot adopt a table and what to do, as a clause and sentences. */
function obstacleOf({ hidesRows, children, rules }: AdoptionFacts, isDistributed: boolean): string | undefined {
  if (isDistributed) {
    return (
      'Citus manages it. Run undistribute_table() for it, then adopt it. ' +
      'Which tables Citus can manage afterwards is in docs/scale.md.'
    )
  }
  if (hidesRows) {
    return (
      'policies hide rows of it from this role. ' +
      'Use a role with BYPASSRLS, or its owner without FORCE ROW LEVEL SECURITY.'
    )
  }
  if (children.length > 0) {
    return `${children.join(', ')} ${children.length === 1 ? 'inherits' : 'inherit'} from it. Use a migration.`
  }
  return rules.length > 0
    ? `it has rules (${rules.join(', ')}). Drop them, or move their work to a trigger.`
    : undefined
}

/** The normalized texts of a row, or the reason why one of them is refused. */
type NormalizedTexts =
  | { readonly texts: readonly (string | null)[]; readonly changed: boolean }
  | { readonly refused: string; readonly column: ColumnMetadata }

export function normalizeStored(
  declared: readonly Pick<Declaration['text'][number], 'normalizer' | 'column'>[],
  stored: readonly (string | null)[],
): NormalizedTexts {
  const texts: (string | null)[] = []
  for (const [index, { normalizer, column }] of declared.entries()) {
    const value = stored[index] ?? null
    try {
      texts.push(value === null ? null : normalizeText(normalizer, column.propertyPath, value))
    } catch (error) {
      if (!(error instanceof TextRejectedError)) throw error
      return { refused: error.reason, column }
    }
  }
  return { texts, changed: texts.some((value, index) => value !== stored[index]) }
}

/** The schema of the constraint that is violated when two sessions make one object at the same time. */
const CATALOG = 'pg_catalog'

const UNIQUE: ReadonlySet<string> = new Set([SQLSTATE.uniqueViolation, SQLSTATE.exclusionViolation])

/** The work of a command that was refused. */
export interface RefusedRows {
  /** The table that the command wrote to. */
  readonly on: { readonly schema: string; readonly table: string }
  /** A clause such as `refuses a normalized text`. */
  readonly what: string
  /** Constraints and indexes that are not the user's. */
  readonly ours: readonly string[]
  /** What to do before the command runs again. @default for a row that can be corrected */
  readonly next?: string
  /** A sentence that is added if a unique index or an exclusion constraint of that table refused it. @default none */
  readonly ofUnique?: string
}

/**
 * Names an index or a constraint of the user that refused a row. It may belong to another table: a referring table has
 * the foreign key, and other tables may refuse the writes of a cascade or a trigger. A domain's has no table.
 *
 * @returns undefined for any other error
 */
export function ownConstraint(error: unknown, ours: readonly string[]): string | undefined {
  const { code = '', constraint, schema = '', table } = serverError(error) ?? {}
  if (constraint === undefined || !code.startsWith('23') || schema === CATALOG || ours.includes(constraint)) {
    return undefined
  }
  const of = table === undefined ? '' : ` of ${tableName({ schema, table })}`
  return `${quote(constraint)}${of}, which is yours,`
}

const CORRECT = 'Correct the row, or drop the constraint or index'

/** @throws AdoptionError for an index or a constraint of the user; rethrows other errors unchanged */
export function againstOwn(error: unknown, { on, what, ours, next = CORRECT, ofUnique = '' }: RefusedRows): never {
  const own = ownConstraint(error, ours)
  if (own === undefined) throw error
  const { code = '', schema, table } = serverError(error) ?? {}
  const todo = UNIQUE.has(code) && table === on.table && schema === on.schema ? ofUnique : ''
  throw new AdoptionError(
    'rejected',
    `${own} refuses ${what} (SQLSTATE ${code}). ${next}, and run the same command again. ${todo}`.trimEnd(),
    error,
  )
}

/** @throws AdoptionError if the text has no guard, or another one */
export function requireAdopted({ declaration, state, on }: Target): void {
  if (findDrift(declaration.table, state).length === 0) return
  throw new AdoptionError('unsupported', `${tableName(on.table)} is not adopted yet: run adopt first.`)
}
