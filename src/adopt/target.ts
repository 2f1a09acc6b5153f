import type { DataSource, EntityTarget, ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { requireServer } from '../registry/internals'
import { type Declaration, textsOfEntity } from '../registry/registry'
import { findDrift } from '../schema/readiness'
import { declaredIn, triggerWorks } from '../schema/table'
import { arrayOf, IS_ATTACHED, type Query, tableState, type TableState } from '../sql/catalog'
import { spreadOf } from '../sql/spread'
import { tableName } from '../sql/text-table'
import { AdoptionError, type AdoptSession, withAdoptSession, type SessionOptions } from './session'
import { type AdoptedTable, type AdoptionFacts } from './table'
import type { AdoptOptions } from './options'
import { type AdoptionState, storedState } from './state'

const triggersOn = (enabled: string): string => `(
         SELECT ${arrayOf('t.tgname ORDER BY t.tgname')} FROM pg_catalog.pg_trigger AS t
          WHERE t.tgrelid OPERATOR(pg_catalog.=) r.oid AND NOT t.tgisinternal AND t.tgenabled OPERATOR(pg_catalog.=) ANY (${enabled})
            AND (t.tgtype OPERATOR(pg_catalog.&) 16) OPERATOR(pg_catalog.<>) 0
            AND NOT ${IS_ATTACHED})`

/** The facts about the table $1. Without a schema in its name, `search_path` decides. */
const FIND_FACTS = `SELECT pg_catalog.jsonb_build_object(
       'oid', r.oid::pg_catalog.text, 'kind', r.relkind, 'owner', o.rolname,
       'bytes', pg_catalog.pg_relation_size(r.oid),
       'updateTriggers', ${triggersOn(`'{O,A}'`)}, 'replicaTriggers', ${triggersOn(`'{R,A}'`)},
       'keyColumns', (
         SELECT ${arrayOf('DISTINCT a.attname')} FROM pg_catalog.pg_constraint AS f
           JOIN pg_catalog.pg_attribute AS a ON a.attrelid OPERATOR(pg_catalog.=) r.oid AND (f.conrelid OPERATOR(pg_catalog.=) r.oid AND a.attnum OPERATOR(pg_catalog.=) ANY (f.conkey)
             OR f.confrelid OPERATOR(pg_catalog.=) r.oid AND a.attnum OPERATOR(pg_catalog.=) ANY (f.confkey))
          WHERE f.contype OPERATOR(pg_catalog.=) 'f' AND r.oid OPERATOR(pg_catalog.=) ANY (ARRAY[f.conrelid, f.confrelid])),
       'rules', (
         SELECT ${arrayOf('w.rulename ORDER BY w.rulename')} FROM pg_catalog.pg_rewrite AS w
          WHERE w.ev_class OPERATOR(pg_catalog.=) r.oid AND w.rulename OPERATOR(pg_catalog.<>) '_RETURN'),
       'hidesRows', pg_catalog.row_security_active(r.oid),
       'children', (
         SELECT ${arrayOf('h.inhrelid::pg_catalog.regclass::pg_catalog.text')} FROM pg_catalog.pg_inherits AS h WHERE h.inhparent OPERATOR(pg_catalog.=) r.oid),
       'checks', (
         SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('name', k.conname, 'columns', (
                  SELECT ${arrayOf('a.attname')} FROM pg_catalog.pg_attribute AS a
                   WHERE a.attrelid OPERATOR(pg_catalog.=) r.oid AND a.attnum OPERATOR(pg_catalog.=) ANY (k.conkey)))), '[]')
           FROM pg_catalog.pg_constraint AS k WHERE k.conrelid OPERATOR(pg_catalog.=) r.oid AND k.contype OPERATOR(pg_catalog.=) 'c')
       )::pg_catalog.text AS facts
       FROM pg_catalog.pg_class AS r
       JOIN pg_catalog.pg_roles AS o ON o.oid OPERATOR(pg_catalog.=) r.relowner
      WHERE r.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1)`

/** The target of a command: a declaration, and its table on this connection. */
export interface Target extends AdoptedTable {
  readonly declaration: Declaration
  readonly facts: AdoptionFacts
  readonly state: TableState
  /** The state of its adoption; undefined if none has begun, or the role may not read it. */
  readonly stored: AdoptionState | undefined
  /** Whether the objects are as declared. */
  readonly isReady: boolean
  /** Columns that should be NOT NULL but still allow NULL, the hash among them. */
  readonly required: readonly string[]
  /** Whether the normalizer may change a text. */
  readonly normalizes: boolean
}

/** @throws DeclarationError unless the entity declares a text of this name, or only one text */
export function findDeclaration(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  property?: string,
): Declaration {
  const metadata = dataSource.getMetadata(entity)
  const all = textsOfEntity(metadata)
  const found = property === undefined && all.length === 1 ? all[0] : all.find(({ name }) => name === property)
  if (found) return found
  const names = all.map(({ name }) => `"${name}"`).join(', ')
  throw new DeclarationError(
    all.length === 0
      ? `${metadata.name} declares no unique text. Put @UniqueText() on a property of it.`
      : `Choose a unique text of ${metadata.name} with "property" (--entity ${metadata.name}.${all[0]?.name}): ${names}.`,
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
  const relation = tableName(table)
  const [row] = (await query(FIND_FACTS, [relation])) as readonly { facts: string }[]
  if (!row) throw noTable(relation)
  const found = JSON.parse(row.facts) as Omit<AdoptionFacts, 'distribution'>
  if (found.kind !== 'r') {
    const why =
      found.kind === 'p'
        ? 'is partitioned, which adopt does not support. ' +
          'Run the migration in a maintenance window, with unique_text.maintenance on.'
        : 'is no table, which adopt does not support. Declare the entity on a table.'
    throw new AdoptionError('unsupported', `${relation} ${why}`)
  }
  const { server, table: state } = await tableState(query, relation, declaredIn(triggerWorks(metadata)))
  requireServer(server, true)
  if (!state) throw noTable(relation)
  const facts = { ...found, distribution: (await spreadOf(query, relation, state.spread)).distribution }
  const primary = metadata.primaryColumns.map(({ databaseName }) => databaseName)
  const on: AdoptedTable = { table: { ...table, schema: state.schema }, primary, owner: facts.owner }
  const declared = [...declaration.text.map(({ column }) => column), ...declaration.scope].filter(
    ({ isNullable }) => !isNullable,
  )
  const hash = metadata.columns.find(({ databaseName }) => databaseName === table.hash)
  const hidden = hash?.isNullable === true ? [table.number, table.chained] : [table.hash, table.number, table.chained]
  const nullable = new Set(state.columns.filter((column) => column.nullable).map(({ name }) => name))
  const isThere = (name: string): boolean => state.columns.some((column) => column.name === name)
  return {
    ...on,
    declaration,
    facts,
    state,
    stored: await storedState(query, on),
    isReady: findDrift(table, state).length === 0,
    required: [...declared.map(({ databaseName }) => databaseName), ...hidden].filter(
      (name) => nullable.has(name) || (name === table.hash && !isThere(name)),
    ),
    normalizes: declaration.text.some(({ normalizer }) => normalizer.name !== 'none'),
  }
}

/**
 * Works on the table of a text with one connection. No other command of the library can work on the table meanwhile.
 * The lock ends with the connection, however the connection ends.
 *
 * @throws AdoptionError if another command works on the table
 * @throws DeclarationError
 */
export async function withText<T>(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: SessionOptions & Pick<AdoptOptions, 'property'>,
  work: (session: AdoptSession, target: Target) => Promise<T>,
): Promise<T> {
  const declaration = findDeclaration(dataSource, entity, options.property)
  return await withAdoptSession(dataSource, options, async (session) => {
    const { facts, table } = await findTarget(declaration, session.query)
    if (!(await session.takeTurn(facts.oid))) {
      throw new AdoptionError(
        'running',
        `${tableName(table)} is being adopted by another session. Wait for it, or end it and run this again.`,
      )
    }
    // Another command may have changed the table before the lock was taken.
    return await work(session, await findTarget(declaration, session.query))
  })
}

export const noTable = (relation: string): AdoptionError =>
  new AdoptionError('unsupported', `There is no table ${relation}. Run your migrations first.`)
