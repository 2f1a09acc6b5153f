import type { DataSource, EntityTarget, ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { checkOptions, type Rule, RULE, type Rules } from '../options'
import { literal } from '../sql/identifier'
import { bytewise, field, isLive, tableName } from '../sql/text-table'
import { chainFields, isOfChain } from './chains'
import { parseRows } from './exact-json'
import {
  createKeys,
  createLog,
  keyArray,
  lastChange,
  type LoggedChange,
  namesOfColumns,
  readPlaces,
  type Reference,
  referencesTo,
  Tables,
} from './merge-log'
import { dropChanged, type LeftRow, mergeBatch, type MergedKey, type MergeRun } from './merge-rows'
import {
  type AdoptOptions,
  BATCH_RULES,
  type BatchOption,
  LOCK_RULES,
  type LockOption,
  PROPERTY_OPTION,
} from './options'
import { AdoptionError, type AdoptSession } from './session'
import { type AdoptedTable, makeWorklist, own, samePrimary, worklistOf } from './table'
import { requireAdopted } from './refusals'
import { withText, type Target } from './target'
import { throughPlaces } from './work'

/** Parameters: a qualified table, a column. */
const FIND_COLUMN: string = `SELECT a.attnum FROM pg_catalog.pg_attribute AS a
 WHERE a.attrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1) AND a.attname OPERATOR(pg_catalog.=) $2::pg_catalog.text AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped`

/** Parameter: a table, with its schema or without. */
const FIND_TABLE: string = `SELECT c.oid FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
 WHERE c.relkind OPERATOR(pg_catalog.=) ANY ('{r,p}')
   AND $1::pg_catalog.text OPERATOR(pg_catalog.=) ANY (ARRAY[c.relname, pg_catalog.concat(n.nspname, '.', c.relname)]) LIMIT 1`

/** The privileges that a merge needs on the table whose rows it merges, and on a table that refers to it. */
const PRIVILEGES = { merged: ['SELECT', 'UPDATE', 'DELETE'], referring: ['SELECT'] } as const

/** Selects whether the role has these privileges on the table $1, may update these columns, and sees all rows. */
const mayMerge = (privileges: readonly string[], columns: readonly string[]): string => {
  const found = '$1::pg_catalog.text::pg_catalog.regclass::pg_catalog.oid'
  const all = [
    ...privileges.map((one) => `pg_catalog.has_table_privilege(${found}, '${one}')`),
    ...columns.map((one) => `pg_catalog.has_column_privilege(${found}, ${literal(one)}::pg_catalog.text, 'UPDATE')`),
    `NOT pg_catalog.row_security_active(${found})`,
  ]
  return `SELECT ${all.join(' AND ')} AS allowed`
}

/**
 * Finds the rows to delete (`k0`, …), each with the row that stays (`p0`, …), in the order of `place`.
 *
 * @param deleteDate the delete date column; a soft-deleted row is kept only if every row is soft-deleted
 */
function findSurplus(on: AdoptedTable, keep: 'oldest' | 'newest', deleteDate: string | undefined): string[] {
  const { table, primary } = on
  const keys = primary.map((name) => field('t', name))
  const by = [
    ...table.scope.map((name) => field('t', name)),
    ...table.text.map(({ name }) => bytewise('t', name)),
  ].join(', ')
  const order = [
    ...(deleteDate === undefined ? [] : [`${field('t', deleteDate)} IS NOT NULL`]),
    ...keys.map((key) => (keep === 'oldest' ? key : `${key} DESC`)),
  ].join(', ')
  const kept = keys.map((key, index) => `pg_catalog.first_value(${key}) OVER w AS p${index}`).join(', ')
  return makeWorklist(
    on,
    `WITH c AS MATERIALIZED (SELECT ${chainFields(on)} FROM ${own(on)} WHERE ${[field('t', table.chained), ...isLive(table, 't')].join(' AND ')}),
r AS (SELECT ${keys.map((key, index) => `${key} AS k${index}`).join(', ')}, ${kept}, pg_catalog.row_number() OVER w AS rank, NULL::pg_catalog.jsonb AS data
        FROM c JOIN ${own(on)} ON ${isOfChain(on, 'c')} WINDOW w AS (PARTITION BY ${by} ORDER BY ${order}))
SELECT pg_catalog.row_number() OVER (ORDER BY ${primary.map((_, index) => `r.p${index}`).join(', ')}) AS place, r.*
  FROM r WHERE r.rank OPERATOR(pg_catalog.>) 1`,
  )
}

/**
 * Selects the next $2 groups after the place $1: the places of rows to delete, and all rows of the group with their
 * keys, in the order of the key.
 */
function readGroups(on: AdoptedTable): string {
  const names = (letter: string): string => on.primary.map((_, index) => `${letter}${index}`).join(', ')
  const key = keyArray(on.primary.map((name) => field('t', name)))
  const order = on.primary.map((name) => field('t', name)).join(', ')
  return `WITH g AS MATERIALIZED (
  SELECT ${names('w.p')}, pg_catalog.array_agg(w.place ORDER BY w.place) AS places FROM ${worklistOf(on)} AS w
   WHERE w.place OPERATOR(pg_catalog.>) $1::pg_catalog.int8 GROUP BY ${names('w.p')} ORDER BY pg_catalog.min(w.place) LIMIT $2::pg_catalog.int8),
m AS (SELECT g.places, ${on.primary.map((_, index) => `g.p${index} AS k${index}`).join(', ')} FROM g
  UNION ALL SELECT g.places, ${names('w.k')} FROM g JOIN ${worklistOf(on)} AS w ON w.place OPERATOR(pg_catalog.=) ANY (g.places))
SELECT pg_catalog.to_jsonb(m.places)::pg_catalog.text AS places, pg_catalog.jsonb_agg(pg_catalog.to_jsonb(t.*) ORDER BY ${order})::pg_catalog.text AS rows,
       pg_catalog.jsonb_agg(pg_catalog.to_jsonb(${key}) ORDER BY ${order})::pg_catalog.text AS keys
  FROM m JOIN ${own(on)} ON ${samePrimary(on, 'm.k')} GROUP BY m.places ORDER BY m.places`
}

/** The names that a merge needs: columns that refer without a foreign key, and tables that may lose rows. */
export interface NamedReferences {
  /**
   * Columns that refer to the primary key without a foreign key, as `table.column` or `schema.table.column`. If a
   * column refers to several tables, also its rows: `attachment.target_id where target_type = 'page'`. @default []
   */
  readonly also?: readonly string[]
  /**
   * Tables, as `table` or `schema.table`, whose rows are merged too if a unique index prevents turning a reference. The
   * row that referred to the kept row is kept, and references to the other are turned. Rows that differ only in key and
   * reference are always merged. @default {}: the row that would be deleted is left and reported
   */
  readonly conflict?: Readonly<Record<string, 'merge'>>
}

const NAMED_RULES: Readonly<Record<keyof NamedReferences, Rule>> = {
  also: {
    takes: (value) => Array.isArray(value) && value.every((name) => typeof name === 'string'),
    expected: 'a list of names as table.column',
  },
  conflict: {
    takes: (value) =>
      typeof value === 'object' && value !== null && Object.values(value).every((one) => one === 'merge'),
    expected: `an object as { bookmark: 'merge' }`,
  },
}

/**
 * Checks that the tables and columns that a merge names exist, and that the role may turn all references.
 * `mergeDuplicates` checks this too. This function is for a caller that first adopts the table, which may take hours.
 *
 * @throws DeclarationError if a table or a column does not exist
 * @throws AdoptionError while an adoption is running, and if the role may not merge
 */
export async function checkMerge(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: NamedReferences & { readonly property?: string | undefined },
): Promise<void> {
  checkOptions('checkMerge()', options, { ...PROPERTY_OPTION, ...NAMED_RULES })
  await withText(dataSource, entity, { property: options.property }, async (session, target) => {
    await allReferences(session, target, options)
  })
}

/**
 * Reads the references that a merge turns: those of foreign keys, and those that a person names.
 *
 * @throws AdoptionError if the role may not turn them
 */
async function allReferences(session: AdoptSession, target: Target, named: NamedReferences): Promise<Reference[]> {
  const references = await referencesTo(session.query, target.facts.oid)
  // With a misspelt name, every row of the intended table would be left.
  for (const name of Object.keys(named.conflict ?? {})) {
    const found = await session.query(FIND_TABLE, [name])
    if (found.length > 0) continue
    throw new DeclarationError(`"conflict" names "${name}", but there is no such table. Write table or schema.table.`)
  }
  for (const name of named.also ?? []) references.push(await namedReference(session, target, name))
  const { table } = target.on
  const wanted = [
    { schema: table.schema, table: table.table, privileges: PRIVILEGES.merged, columns: [] },
    ...references.map((one) => ({ ...one, privileges: PRIVILEGES.referring })),
  ]
  for (const one of wanted) {
    const [found] = await session.query<{ allowed: boolean }>(mayMerge(one.privileges, one.columns), [tableName(one)])
    if (found?.allowed === true) continue
    const needed = [...one.privileges, ...(one.columns.length > 0 ? [`UPDATE (${one.columns.join(', ')})`] : [])]
    throw new AdoptionError(
      'unsupported',
      `The role may not merge rows: it needs ${needed.join(', ')} on ${tableName(one)}, all of whose rows it must see. ` +
        `Grant them, or run the command as the owner.`,
    )
  }
  return references
}

/** `table.column`, and a condition on its rows. */
const NAMED_REFERENCE = /^(?<path>.+?)(?:\s+where\s+(?<column>[^\s=]+)\s*=\s*'(?<value>(?:[^']|'')*)')?$/iu

/**
 * A reference without a foreign key, as a person names it.
 *
 * @throws DeclarationError if a column does not exist, or if its rows refer to several tables
 */
async function namedReference(session: AdoptSession, { on }: Target, name: string): Promise<Reference> {
  const { path, when, ...reference } = parseReference(name, on)
  const [column = ''] = reference.columns
  const isColumn = async (one: string): Promise<boolean> =>
    (await session.query(FIND_COLUMN, [tableName(reference), one])).length > 0
  if (!(await isColumn(column)) || !(await isColumn(when?.column ?? column)) || on.primary.length !== 1) {
    throw new DeclarationError(
      `"${path}" must name a column that refers to a primary key of one column. Write table.column, or ` +
        `table.column where kind = 'page'.`,
    )
  }
  const stem = column.replace(/_?id$/iu, '')
  for (const kind of when ? [] : [`${stem}_type`, `${stem}Type`]) {
    if (!(await isColumn(kind))) continue
    throw new DeclarationError(
      `"${path}" may refer to several tables: there is a column "${kind}". Write which rows refer to this one: ` +
        `${path} where ${kind} = '…'.`,
    )
  }
  return { ...reference, when }
}

function parseReference(name: string, on: AdoptedTable): Reference & { readonly path: string } {
  const { path = '', column: by, value = '' } = NAMED_REFERENCE.exec(name)?.groups ?? {}
  const [column = '', table = '', schema = on.table.schema] = path.split('.').reverse()
  const when = by === undefined ? undefined : { column: by, value: value.replaceAll("''", "'") }
  const own = schema === on.table.schema && table === on.table.table
  return { path, schema, table, columns: [column], referenced: on.primary, shared: [], own, when }
}

/** Options of the merge of duplicates. */
export interface MergeOptions extends NamedReferences, Pick<AdoptOptions, LockOption | BatchOption> {
  /**
   * The row of equal texts to keep, by primary key. Rows that are not soft-deleted take precedence. A function chooses
   * for each group.
   */
  readonly keep: 'oldest' | 'newest' | MergeRows
  /**
   * Does each batch and rolls it back. The report lists the changes that a merge would make now. It locks rows as a
   * merge does, and your triggers run. @default false
   */
  readonly dryRun?: boolean | undefined
  /** Called after each batch with the number of rows merged so far. */
  readonly onProgress?: (merged: number) => void
  /** Called after each batch with the rows that it merged. */
  readonly onMerged?: ((rows: readonly MergedKey[]) => void) | undefined
}

/**
 * Chooses among rows of equal text. Their values have the columns' names in the database and their form in JSON.
 * Numbers that JavaScript would round are strings.
 */
export type MergeRows = (rows: readonly ObjectLiteral[]) => MergeDecision | Promise<MergeDecision>

/** The decision about rows of equal text. */
export interface MergeDecision {
  /** One of the rows. */
  readonly keep: ObjectLiteral
  /** New values of its columns, by their names in the database. Key, text and scope cannot be set. */
  readonly set?: ObjectLiteral
}

const MERGE_RULES: Rules<MergeOptions> = {
  ...LOCK_RULES,
  ...BATCH_RULES,
  keep: {
    takes: (value) => typeof value === 'function' || value === 'oldest' || value === 'newest',
    expected: 'oldest, newest or a function',
  },
  ...NAMED_RULES,
  dryRun: RULE.boolean,
  onProgress: RULE.function,
  onMerged: RULE.function,
}

/** The result of a merge. */
export interface MergeReport {
  /** How many rows were removed. */
  readonly merged: number
  /** By table, the turned references, and the rows of other tables that were deleted because they clashed. */
  readonly changes: readonly MergeChange[]
  /** Rows that are left unchanged, and the constraint or the reason. */
  readonly left: readonly LeftRow[]
}

/** The changes of a merge in a table. */
export interface MergeChange {
  /** With its schema. */
  readonly table: string
  /** The columns of the references; undefined for deleted rows. */
  readonly columns: readonly string[] | undefined
  /** How many rows. */
  readonly rows: number
}

const MERGE_BATCH = { first: 20, least: 5, fewest: 1 }

/** A limit, because clients may change duplicates all the time. The adoption reports the rest. */
const MOST_ROUNDS = 100

/**
 * Merges rows that hold the same text into one. References are turned to the row that is kept. The others are deleted,
 * and a log holds them whole. If a unique index of a referring table prevents that, the row is left and reported.
 *
 * @throws AdoptionError for a table that is not adopted, and while an adoption is running
 * @throws DeclarationError, UnsupportedDatabaseError
 */
export async function mergeDuplicates(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: MergeOptions,
): Promise<MergeReport> {
  checkOptions('mergeDuplicates()', options, MERGE_RULES, ['keep'])
  return await withText(dataSource, entity, options, async (session, target) => {
    requireAdopted(target, true)
    const references = await allReferences(session, target, options)
    const { deleteDateColumn } = target.declaration.metadata
    const tables = new Tables(session)
    const table = await tables.keyed(target.on.table)
    await session.make('merge', [...createLog(target.on), ...createKeys(target.on, table)])
    const { keep, dryRun = false } = options
    session.isTrial = dryRun
    const order = keep === 'newest' ? keep : 'oldest'
    // Foreign keys and the user's triggers must run. Only the flags are cleared without the guard.
    const clears = await session.becomeReplica()
    if (clears) await session.set('session_replication_role', 'origin')
    const decides = typeof keep === 'function'
    const [row] = await session.query<{ last: string }>(lastChange(target.on))
    const merging: MergeRun = {
      session,
      target,
      table,
      tables,
      references,
      mergedTables: Object.keys(options.conflict ?? {}),
      clears,
      decides,
      onMerged: options.onMerged,
      left: [],
      changes: new Map(),
      logged: row?.last ?? '0',
      merged: 0,
      changed: 0,
    }
    // If the row to keep was deleted or has another text, the other rows of its group still have equal texts.
    const rounds = dryRun ? 1 : MOST_ROUNDS
    let round = 0
    do {
      round += 1
      merging.changed = 0
      merging.left.length = 0
      await session.all(findSurplus(target.on, order, deleteDateColumn?.databaseName))
      if (decides) await decideGroups(merging, keep)
      await throughPlaces(session, MERGE_BATCH, async (last, limit) => {
        const rows = await session.query<{ place: string }>(readPlaces(target.on), [last, limit])
        const places = rows.map(({ place }) => place)
        if (places.length === 0) return { seen: 0, last, stuck: 0 }
        const stuck = await mergeBatch(merging, places)
        options.onProgress?.(merging.merged)
        return { seen: places.length, last: places.at(-1) ?? last, stuck }
      })
    } while (merging.changed > 0 && round < rounds)
    const changes = [...merging.changes].map(([change, rows]) => {
      const { schema, table: name, columns } = JSON.parse(change) as LoggedChange
      return { table: tableName({ schema, table: name }), columns, rows }
    })
    return { merged: merging.merged, changes, left: merging.left }
  })
}

const GROUPS = 100

/** Calls the function for every group, outside a transaction. Rows that change before the merge are left out. */
async function decideGroups(merging: MergeRun, merge: MergeRows): Promise<void> {
  const { session, table } = merging
  const { on } = merging.target
  const fixed = new Set([...on.primary, ...on.table.scope, ...on.table.text.map(({ name }) => name)])
  // Stores a decision at the places $1: the keys $2 to delete, the key $3 to keep, and the kept row's values $4.
  const keys = table.types.flatMap((type, index) => [
    `k${index} = ($2::pg_catalog.jsonb OPERATOR(pg_catalog.->) (v.n OPERATOR(pg_catalog.-) 1)::pg_catalog.int4 OPERATOR(pg_catalog.->>) ${index})::${type}`,
    `p${index} = ($3::pg_catalog.text[])[${index + 1}]::${type}`,
  ])
  const decide = `UPDATE ${worklistOf(on)} AS w SET ${keys.join(', ')}, data = $4::pg_catalog.jsonb
  FROM pg_catalog.unnest($1::pg_catalog.int8[]) WITH ORDINALITY AS v (place, n) WHERE w.place OPERATOR(pg_catalog.=) v.place`
  const free = new Set(namesOfColumns(table).filter((name) => !fixed.has(name)))
  for (let last = '0'; ;) {
    const groups = await session.query<Record<'places' | 'rows' | 'keys', string>>(readGroups(on), [last, GROUPS])
    for (const group of groups) {
      const rows = parseRows(group.rows, 2) as ObjectLiteral[]
      const keysOfRows = JSON.parse(group.keys) as string[][]
      const places = (JSON.parse(group.places) as number[]).map(String)
      last = places.at(-1) ?? last
      if (rows.length === places.length + 1) {
        // A file is not compiled against our types, so its function may have returned nothing, or a row.
        const decision: { readonly [Key in keyof MergeDecision]?: MergeDecision[Key] | null } | null | undefined =
          await merge(rows)
        const { keep, set } = decision ?? {}
        const other = Object.keys(set ?? {}).find((name) => !free.has(name))
        if (other !== undefined) {
          throw new DeclarationError(
            `merge(): "set" may not name "${other}". Name columns of the table but the key, the text and its scope.`,
          )
        }
        const kept = rows.findIndex((row) => row === keep || on.primary.every((name) => row[name] === keep?.[name]))
        if (kept === -1)
          throw new DeclarationError('merge(): "keep" must be one of the rows. Return { keep: rows[0] }, for instance.')
        const others = keysOfRows.filter((_, index) => index !== kept)
        const values = [places, JSON.stringify(others), keysOfRows[kept], set && JSON.stringify(set)]
        await session.query(decide, values)
      } else await dropChanged(merging, places)
    }
    if (groups.length < GROUPS) return
    await session.breathe()
  }
}
