import type { DataSource, EntityMetadata, EntityTarget, ObjectLiteral } from 'typeorm'
import { DeclarationError, TextRejectedError } from '../errors'
import { requireServer } from '../registry/internals'
import { type ColumnMetadata, type Declaration, declarationsOf } from '../registry/registry'
import { findDrift } from '../schema/readiness'
import { wantedSets } from '../schema/table'
import { type Query, tableState, type TableState } from '../sql/catalog'
import { quote } from '../sql/identifier'
import { isElsewhere, spreadOf } from '../sql/spread'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { field, tableName, type TextTable } from '../sql/text-table'
import { TEXT_TRIGGERS } from '../sql/trigger-set'
import { normalizeText } from '../text/normalizer'
import { AdoptionError, type AdoptSession, withTable, type SessionOptions } from './session'
import { type AdoptedTable, type Adopting, type AdoptionFacts, keyAsJson, own } from './table'
import type { AdoptOptions } from './options'

/** The guard of a table: its note, and the functions, triggers and columns that are dropped with it. */
interface StandingGuard extends Pick<TextTable, 'hash' | 'number' | 'chained'> {
  /** The rules by which it keeps the rows, for a comparison. */
  readonly rules: string
  readonly functions: readonly { readonly schema: string; readonly name: string }[]
  readonly triggers: readonly string[]
}

/** The replacement of a guard of another declaration. */
export interface Swap {
  /** The table as declared. Until the swap, the adoption uses names of its own. */
  readonly final: AdoptedTable
  readonly before: StandingGuard
  /** Columns of the text that may be NULL after the swap. */
  readonly loosened: readonly string[]
  /** Columns that become NOT NULL once the new guard exists: the old declaration allows NULL there. */
  readonly tightened: readonly string[]
}

const triggersOn = (enabled: string): string => `(
         SELECT coalesce(pg_catalog.jsonb_agg(t.tgname ORDER BY t.tgname), '[]') FROM pg_catalog.pg_trigger AS t
          WHERE t.tgrelid OPERATOR(pg_catalog.=) r.oid AND NOT t.tgisinternal AND t.tgenabled OPERATOR(pg_catalog.=) ANY (${enabled})
            AND (t.tgtype OPERATOR(pg_catalog.&) 16) OPERATOR(pg_catalog.<>) 0
            AND NOT EXISTS (SELECT FROM pg_catalog.unnest($2::pg_catalog.text[]) AS p (name) WHERE pg_catalog.starts_with(t.tgname, p.name)))`

/**
 * @param relation the table's name as SQL; `search_path` applies if it names no schema
 * @param ours how the names of our own triggers begin
 * @returns undefined if there is no such table
 */
async function adoptionFacts(
  query: Query,
  relation: string,
  ours: readonly string[],
): Promise<Omit<AdoptionFacts, 'distribution'> | undefined> {
  const [row] = (await query(
    `SELECT pg_catalog.jsonb_build_object(
       'oid', r.oid::pg_catalog.text, 'schema', n.nspname, 'table', r.relname, 'kind', r.relkind, 'owner', o.rolname,
       'rows', r.reltuples, 'bytes', pg_catalog.pg_relation_size(r.oid),
       'updateTriggers', ${triggersOn(`'{O,A}'`)}, 'replicaTriggers', ${triggersOn(`'{R,A}'`)},
       'keyColumns', (
         SELECT coalesce(pg_catalog.jsonb_agg(DISTINCT a.attname), '[]') FROM pg_catalog.pg_constraint AS f
           JOIN pg_catalog.pg_attribute AS a ON a.attrelid OPERATOR(pg_catalog.=) r.oid AND (f.conrelid OPERATOR(pg_catalog.=) r.oid AND a.attnum OPERATOR(pg_catalog.=) ANY (f.conkey)
             OR f.confrelid OPERATOR(pg_catalog.=) r.oid AND a.attnum OPERATOR(pg_catalog.=) ANY (f.confkey))
          WHERE f.contype OPERATOR(pg_catalog.=) 'f' AND r.oid OPERATOR(pg_catalog.=) ANY (ARRAY[f.conrelid, f.confrelid])),
       'hidesRows', pg_catalog.row_security_active(r.oid),
       'children', (
         SELECT coalesce(pg_catalog.jsonb_agg(h.inhrelid::pg_catalog.regclass::pg_catalog.text), '[]') FROM pg_catalog.pg_inherits AS h WHERE h.inhparent OPERATOR(pg_catalog.=) r.oid),
       'checks', (
         SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('name', k.conname, 'columns', (
                  SELECT coalesce(pg_catalog.jsonb_agg(a.attname), '[]') FROM pg_catalog.pg_attribute AS a
                   WHERE a.attrelid OPERATOR(pg_catalog.=) r.oid AND a.attnum OPERATOR(pg_catalog.=) ANY (k.conkey)))), '[]')
           FROM pg_catalog.pg_constraint AS k WHERE k.conrelid OPERATOR(pg_catalog.=) r.oid AND k.contype OPERATOR(pg_catalog.=) 'c')
       )::pg_catalog.text AS facts
       FROM pg_catalog.pg_class AS r
       JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) r.relnamespace
       JOIN pg_catalog.pg_roles AS o ON o.oid OPERATOR(pg_catalog.=) r.relowner
      WHERE r.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1)`,
    [relation, ours],
  )) as readonly { facts: string }[]
  return row && (JSON.parse(row.facts) as Omit<AdoptionFacts, 'distribution'>)
}

/** The target of an adoption: a declaration, and its table on this connection. */
export interface Target {
  readonly declaration: Declaration
  readonly on: AdoptedTable
  readonly facts: AdoptionFacts
  readonly state: TableState
  /** Columns that should be NOT NULL but still allow NULL, the hash among them. */
  readonly required: readonly string[]
  /** Whether the normalizer may change a text. */
  readonly normalizes: boolean
  /** The change from a guard of another declaration, beside which the adoption works. */
  readonly swap?: Swap
}

/** @throws DeclarationError unless the entity declares a text of this name, or only one text */
export function findDeclaration(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  property?: string,
): Declaration {
  const metadata = dataSource.getMetadata(entity)
  const all = declarationsOf(metadata)
  const found = property === undefined && all.length === 1 ? all[0] : all.find(({ name }) => name === property)
  if (found) return found
  const names = all.map(({ name }) => `"${name}"`).join(', ')
  throw new DeclarationError(
    all.length === 0
      ? `${metadata.name} declares no unique text. Put @UniqueText() on a property of it.`
      : `Choose a unique text of ${metadata.name} with "property" (--property): ${names}.`,
  )
}

const ADOPT_WITH_GUARD =
  'adopt works by triggers, and the text is declared with guard: false. Adopt it without that option; a migration then takes the guard away.'

/**
 * @throws AdoptionError if the table does not exist or is no ordinary table, and for a text without a guard
 * @throws UnsupportedDatabaseError
 */
export async function findTarget(declaration: Declaration, query: Query): Promise<Target> {
  const { table, metadata } = declaration
  if (table.guardless === true) throw new AdoptionError('unsupported', ADOPT_WITH_GUARD)
  const { facts, state } = await findTable(query, metadata, tableName(table))
  const primary = metadata.primaryColumns.map(({ databaseName }) => databaseName)
  const on: AdoptedTable = { table: { ...table, schema: facts.schema }, primary, owner: facts.owner }
  const declared = [...declaration.text.map(({ column }) => column), ...declaration.scope].filter(
    ({ isNullable }) => !isNullable,
  )
  const hash = metadata.columns.find(({ databaseName }) => databaseName === table.hash)
  const hidden = hash?.isNullable === true ? [table.number, table.chained] : [table.hash, table.number, table.chained]
  const nullable = new Set(state.columns.filter((column) => column.nullable).map(({ name }) => name))
  const isThere = (name: string): boolean => state.columns.some((column) => column.name === name)
  return {
    declaration,
    on,
    facts,
    state,
    required: [...declared.map(({ databaseName }) => databaseName), ...hidden].filter(
      (name) => nullable.has(name) || (name === table.hash && !isThere(name)),
    ),
    normalizes: declaration.text.some(({ normalizer }) => normalizer.name !== 'none'),
  }
}

/**
 * Works on the table of a text, as `withTable` does.
 *
 * @throws DeclarationError
 */
export async function withText<T>(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: SessionOptions & Pick<AdoptOptions, 'property'>,
  work: (session: AdoptSession, target: Target) => Promise<T>,
): Promise<T> {
  const declaration = findDeclaration(dataSource, entity, options.property)
  const find = async (query: Query): Promise<Target> => await findTarget(declaration, query)
  return await withTable({ dataSource, find, options }, work)
}

/**
 * Finds a table on a connection.
 *
 * @throws AdoptionError if the table does not exist or is no ordinary table
 * @throws UnsupportedDatabaseError
 */
export async function findTable(
  query: Query,
  metadata: EntityMetadata,
  relation: string,
): Promise<{ readonly facts: AdoptionFacts; readonly state: TableState }> {
  const sets = wantedSets(metadata)
  const ours = sets.flatMap(({ triggers }) => triggers.map(({ name }) => name))
  const facts = await adoptionFacts(query, relation, [...ours, TEXT_TRIGGERS])
  if (!facts) throw noTable(relation)
  if (facts.kind !== 'r') {
    const why =
      facts.kind === 'p'
        ? [
            'is partitioned, which adopt does not support.',
            'Run the migration in a maintenance window, with unique_text.maintenance on.',
          ]
        : ['is no table, which adopt does not support.', 'Declare the entity on a table.']
    throw new AdoptionError('unsupported', `${relation} ${why.join(' ')}`)
  }
  const { server, table: state } = await tableState(query, relation, sets)
  requireServer(server, true)
  if (!state) throw noTable(relation)
  const { distribution } = await spreadOf(query, relation, state.spread)
  return { facts: { ...facts, distribution }, state }
}

/** Types of columns, as SQL. */
export const declaredTypes = ({ columns }: TableState, names: readonly string[]): string[] =>
  names.map((name) => columns.find((column) => column.name === name)?.declared ?? 'text')

export const noTable = (relation: string): AdoptionError =>
  new AdoptionError('unsupported', `There is no table ${relation}. Run your migrations first.`)

/** The number of rows, or groups of rows, that a message names. */
export const KEYS_NAMED = 10

/**
 * @param said the clause that describes a column in the sentence, and the advice
 * @throws AdoptionError that names the first rows with NULL in one of the columns
 */
export async function refuseNullRows(
  query: Query,
  on: Adopting,
  columns: readonly string[],
  said: { readonly what?: string; readonly todo: string },
): Promise<void> {
  for (const column of columns) {
    const rows = (await query(
      `SELECT ${keyAsJson(on)}::pg_catalog.text AS key FROM ${own(on)} WHERE ${field('t', column)} IS NULL LIMIT ${KEYS_NAMED}`,
    )) as readonly { key: string }[]
    if (rows.length === 0) continue
    const keys = rows.map(({ key }) => key).join(', ')
    throw new AdoptionError(
      'nulls',
      `Rows of ${tableName(on.table)} hold NULL in ${quote(column)}, ${said.what ?? ''}the first of them: ${keys}. ${said.todo}`,
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
  { hidesRows, distribution, children }: AdoptionFacts,
  relation: string,
  isDistributed: boolean = isElsewhere(distribution),
): void {
  if (isDistributed)
    throw new AdoptionError(
      'unsupported',
      `${relation} cannot be adopted: Citus manages it. Run undistribute_table() for it, then adopt it. ` +
        'Which tables Citus can manage afterwards is in docs/scale.md.',
    )
  const [why, next] = hidesRows
    ? [
        'policies hide rows of it from this role',
        'Use a role with BYPASSRLS, or its owner without FORCE ROW LEVEL SECURITY.',
      ]
    : [`${children.join(', ')} ${children.length === 1 ? 'inherits' : 'inherit'} from it`, 'Use a migration.']
  if (!hidesRows && children.length === 0) return
  throw new AdoptionError('unsupported', `${relation} cannot be adopted: ${why}. ${next}`)
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
    'refused',
    `${own} refuses ${what} (SQLSTATE ${code}). ${next}, and run the same command again. ${todo}`.trimEnd(),
    error,
  )
}

/** @throws AdoptionError if the text has a guard but should not, or should have a guard but does not */
export function requireAdopted({ declaration, state, on }: Target, wanted: boolean): void {
  const isAdopted = findDrift(declaration.table, state).length === 0
  if (isAdopted === wanted) return
  throw new AdoptionError(
    'unsupported',
    wanted
      ? `${tableName(on.table)} is not adopted yet: run adopt first.`
      : `${tableName(on.table)} is unique, so merged rows would be duplicates again: run abandon first.`,
  )
}
