import { quote } from '../sql/identifier'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { tableName } from '../sql/text-table'
import { AdoptionError } from './session'

/** The number of rows, or groups of rows, whose keys a report or an error has. */
export const KEYS_NAMED = 10

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
