import { createHash } from 'node:crypto'
import type { Change, FilledColumn } from './alter'
import { dollarQuote, list, literal, packed, qualified, quote, withoutComments } from './identifier'
import { SQLSTATE } from './sqlstate'
import { EQUALS, joinOf, op } from './text-table'

/** The type of functions, including their arguments. */
const PROCEDURE = 'pg_catalog.regprocedure'

/**
 * The part of a row that triggers keep right: a text, the names that it holds, or its number. Except for `guard`, a kind
 * is also the name of the entry that declares it, which an error asks users to import.
 */
export type TriggerKind = 'guard' | 'names' | 'numbers'

/** The prefix of every function body in a set. It identifies the function, even if the function was renamed. */
export const TRIGGER_MARK = '-- typeorm-unique-text '

/** The prefix of the names of a text's triggers, including temporary triggers of an adoption. */
export const TEXT_TRIGGERS = 'unique_text_'

/** Bits of `pg_trigger.tgtype`. A trigger without `row` fires per statement, and one without `before` fires after. */
export const FIRES = { row: 1, before: 2, insert: 4, delete: 8, update: 16, truncate: 32 } as const

/** Few enough to read, and enough to distinguish two statements. */
const DIGEST_DIGITS = 8

/** A trigger, as it should exist. */
export interface Trigger {
  readonly name: string
  /** The function's name. */
  readonly runs: string
  /** The value of `pg_trigger.tgtype`: a sum of `FIRES`. */
  readonly type: number
  /** The columns that it must name, in this order. If undefined, any columns. */
  readonly columns?: readonly string[]
  /** The columns that its condition names, in any order. If undefined, any columns. */
  readonly compares?: readonly string[]
  /** The condition of its WHEN, as SQL. Empty if there is none. */
  readonly when: string
  /** The function's arguments. */
  readonly args: readonly string[]
  /** The text after REFERENCING. Empty if there is none. */
  readonly transitions: string
  /** The whole CREATE TRIGGER statement. */
  readonly create: string
}

/** The events that fire a trigger, and the function that it runs. */
export interface Firing {
  readonly name: string
  readonly time: 'BEFORE' | 'AFTER'
  /** If columns are named, they belong to the last event. */
  readonly events: readonly Exclude<keyof typeof FIRES, 'row' | 'before'>[]
  /** The columns of `UPDATE OF`. @default []: any column */
  readonly columns?: readonly string[]
  /** @default 'ROW' */
  readonly each?: 'ROW' | 'STATEMENT'
  /** The transition tables. */
  readonly referencing?: string
  /**
   * Predicates for an OR. They are as short as possible: for each statement that writes to the table, the server parses
   * and plans them, and they are false for nearly every row. The function tests any other conditions.
   */
  readonly when?: readonly string[]
  /** A function in the table's schema. */
  readonly runs: string
  /** @default [] */
  readonly args?: readonly string[]
}

/** A function that triggers run, as it should exist in the table's schema. */
export interface TriggerFunction {
  readonly name: string
  readonly body: string
}

/** A table that a set keeps, as it should exist. */
export interface KeptTable {
  readonly name: string
  /** The types of the columns. If a type is that of a column of the set's table, it is given by that column. */
  readonly columns: Readonly<Record<string, string | { readonly like: string }>>
  readonly primary: readonly string[]
  /** A trigger on the table itself. */
  readonly trigger: string | undefined
}

/** The triggers of one table and the functions that they run, as they should exist. */
export interface TriggerSet {
  readonly kind: TriggerKind
  /** Distinguishes the set from others of its kind on the table. Renaming the table does not change it. */
  readonly name: string
  readonly table: RelationName
  /** A table of another schema that the functions also find by its name. */
  readonly path: RelationName | undefined
  /** A table that the functions write to as their owner. */
  readonly writes: RelationName | undefined
  /** The columns that the set works on, by their role in it. A renamed column is followed. */
  readonly columns: Readonly<Record<string, string>>
  /** Tables that only its functions use, in the table's schema and with its owner. */
  readonly tables: readonly KeptTable[]
  /** The note in the body of the first function. */
  readonly note: TriggerNote
  /** The oldest protocol of an installed set that this release can work with. */
  readonly accepts: number
  /** The body of the first function contains the note. */
  readonly functions: readonly TriggerFunction[]
  readonly triggers: readonly (Trigger & { readonly digest: string })[]
  /** All statements that create the set, and all that drop it. */
  readonly create: readonly string[]
  readonly drop: readonly string[]
}

/**
 * The note in the body of the first function of a set, as JSON in a SQL comment. It holds data that the catalog lacks,
 * and data that is needed once the set is no longer declared. COMMENT ON would not do: a dump may leave out those
 * comments, and they do not reach other nodes of a cluster.
 */
export interface TriggerNote {
  readonly kind: TriggerKind
  readonly name: string
  /** Increases when a change of the triggers makes installed sets wrong. */
  readonly protocol: number
  /** The oldest protocol of a release that can work with this set. @default protocol */
  readonly serves?: number
  readonly path?: RelationName
  readonly columns?: Readonly<Record<string, string>>
  /** Digests of the statements that created the triggers, because the server prints conditions in its own words. */
  readonly triggers: readonly string[]
}

/** The change of the rows when a set of triggers, or a column of it, is removed. It runs after the triggers are dropped. */
export interface RemovedRows {
  readonly change?: Change
  /** Columns that are dropped with the set if no entity declares them. The way back restores them by `fill`. */
  readonly filled?: readonly FilledColumn[]
  readonly fill?: readonly string[]
}

/** The table in its present state. */
export interface RemovedFrom {
  readonly schema: string | undefined
  readonly table: string
  /** The columns of the primary key. */
  readonly primary: readonly string[]
}

/** The parts of a set. */
export interface TriggerSetParts
  extends
    Pick<TriggerSet, 'kind' | 'name' | 'table'>,
    Partial<Pick<TriggerSet, 'path' | 'writes' | 'columns' | 'tables' | 'accepts'>> {
  /** The page that documents the functions. Their first line names it. */
  readonly docs: string
  readonly functions: readonly {
    readonly name: string
    readonly body: string
    /** A sentence about the function, for a comment. */
    readonly says: string
  }[]
  /** The triggers of a table in this schema. It is undefined if `search_path` decides. */
  readonly triggers: (schema: string | undefined) => readonly Trigger[]
  /** Further members of the note. Undefined members are left out. */
  readonly note: Readonly<Record<string, unknown>> & { readonly protocol: number }
}

/** Adds marks, notes and digests to triggers and their functions, so that they can be found and compared. */
export function triggerSet({ kind, name, table, columns, ...parts }: TriggerSetParts): TriggerSet {
  const relation = qualified(table.schema, table.name)
  const triggers = parts.triggers(table.schema)
  // Without the schema, because a DataSource with the schema and one without it mean the same triggers.
  const digests = parts
    .triggers(undefined)
    .map(({ create }) => createHash('sha256').update(withoutComments(create)).digest('hex').slice(0, DIGEST_DIGITS))
  const { protocol, ...rest } = parts.note
  const noted = { protocol, kind, name, path: parts.path, columns, ...rest, triggers: digests }
  const members = Object.entries(noted).filter(([, value]) => value !== undefined)
  const note = Object.fromEntries(members) as unknown as TriggerNote
  // Wrapped, so that a migration is readable.
  const json = list(
    members.map(([key, value]) => `${JSON.stringify(key)}:${JSON.stringify(value)}`),
    0,
  )
  const functions = parts.functions.map(({ says, name: called, body }, position) => ({
    name: called,
    body:
      `${headOf(kind, parts.docs)}\n-- It ${says.replaceAll(/\s+/g, ' ')}` +
      `${position === 0 ? `\n-- {${json.replaceAll('\n', '\n-- ')}}` : ''}${body}`,
  }))
  const sources = functions.map((one) => ({
    ...one,
    schema: table.schema,
    path: parts.path,
    writes: parts.writes,
    relation,
  }))
  return {
    kind,
    name,
    table,
    path: parts.path,
    writes: parts.writes,
    columns: columns ?? {},
    tables: parts.tables ?? [],
    note,
    accepts: parts.accepts ?? protocol,
    functions,
    triggers: triggers.map((one, index) => ({ ...one, digest: digests[index] ?? '' })),
    // Most callers only compare a set, and the words in which two bodies differ take a hundred times as long.
    get create() {
      return [...makeFunctions({ fresh: sources }), ...triggers.map((one) => one.create)]
    },
    drop: [...triggers.map((one) => dropTrigger(relation, one.name)), ...dropFunctions(sources)],
  }
}

/** The tables that the functions of a set find besides its own, as SQL. */
export const otherTables = ({ path, writes }: Partial<Pick<TriggerSet, 'path' | 'writes'>>): string[] =>
  [path, writes].flatMap((one) => (one ? qualified(one.schema, one.name) : []))

const TRIGGER_LINE_CHARACTERS = 116

/** Creates the triggers of all sets. */
export function triggerOn(table: RelationName, firing: Firing): Trigger {
  const { name, time, events, columns = [], each = 'ROW', referencing = '', when = [], runs, args = [] } = firing
  const fires = `${time} ${events.join(' OR ').toUpperCase()}${columns.length === 0 ? '' : ' OF'}`
  const on = [
    `ON ${qualified(table.schema, table.name)}`,
    ...(referencing === '' ? [] : [`REFERENCING ${referencing}`]),
  ]
  const [first = '', ...more] = args.map(literal)
  const create = packed(
    [
      `CREATE TRIGGER ${quote(name)} ${fires}`,
      ...columns.map((one, at) => `${quote(one)}${at < columns.length - 1 ? ',' : ''}`),
      `${on.join(' ')} FOR EACH ${each}`,
      ...when.map((one, at) => `${at === 0 ? 'WHEN (' : 'OR '}${one}${at === when.length - 1 ? ')' : ''}`),
      ...[`EXECUTE FUNCTION ${qualified(table.schema, runs)}(${first}`, ...more].map(
        (one, at) => `${one}${at < more.length ? ',' : ')'}`,
      ),
    ],
    ' ',
    TRIGGER_LINE_CHARACTERS,
  ).join('\n  ')
  const type = [
    ...events,
    ...(each === 'ROW' ? ['row' as const] : []),
    ...(time === 'BEFORE' ? ['before' as const] : []),
  ]
    .map((one) => FIRES[one])
    .reduce((sum, one) => sum + one, 0)
  return {
    name,
    runs,
    type,
    ...(columns.length > 0 ? { columns } : {}),
    when: when.join(' OR '),
    args,
    transitions: referencing,
    create,
  }
}

const headOf = (kind: string, docs: string): string =>
  `\n${TRIGGER_MARK}${kind}: generated, do not edit; see ${docs} of the repository.`

/** Returns undefined if the body has no note. */
export function parseNote(body: string): TriggerNote | undefined {
  const lines = body.split('\n').map((line) => line.trim())
  const start = lines.findIndex((line) => line.startsWith('-- {'))
  const end = lines.findIndex((line, index) => index >= start && line.endsWith('}'))
  if (start < 0 || end < 0 || !body.trimStart().startsWith(TRIGGER_MARK)) return undefined
  const json = lines.slice(start, end + 1).map((line) => line.replace(/^--/, ''))
  try {
    return JSON.parse(json.join(' ')) as TriggerNote
  } catch {
    return undefined
  }
}

/** A table. Without a schema, `search_path` decides. */
export interface RelationName {
  readonly schema: string | undefined
  readonly name: string
}

/** A function that triggers run, with its schema. If the schema is undefined, `search_path` decides. */
export interface FunctionSource {
  readonly schema: string | undefined
  readonly name: string
  readonly body: string
  /** A table of another schema that it also finds by name. That schema precedes the schema of its own table. */
  readonly path?: RelationName | undefined
  /** A table that the function writes to as the owner of its own table. */
  readonly writes?: RelationName | undefined
}

/**
 * The settings of every function.
 *
 * - `enable_seqscan`: plans are cached while the table is tiny, so a bulk insert would continue with sequential scans.
 * - `row_security`: a policy that would hide a chain, by FORCE or from another owner, raises 42501 and leaves no gap.
 * - `search_path` ends with `pg_temp`, so that no temporary object can hide another. It contains the table's schema for
 *   triggers of the user that our UPDATEs run. Our triggers qualify everything that an attacker could create.
 */
const SETTINGS = { enable_seqscan: 'off', row_security: 'off' } as const

/** The unquoted elements of `pg_proc.proconfig` for functions that resolve names in these schemas. */
export const functionSettings = (homes: readonly string[]): string[] => [
  ...Object.entries(SETTINGS).map(([name, value]) => `${name}=${value}`),
  `search_path=${['pg_catalog', ...homes, 'pg_temp'].join(', ').replaceAll('"', '')}`,
]

/** A function, and the table whose owner it is to run as, as SQL. */
export interface OwnedFunction extends FunctionSource {
  readonly relation: string
}

/**
 * Creates and secures functions in one string, which the server runs as one transaction even if the migration has none.
 * So no function is used before it is secured, or runs as an owner with another role's path.
 *
 * A fresh function is dropped first. CREATE OR REPLACE would keep its owner and what the owner granted, and that role
 * could replace the body.
 *
 * @param made.fresh functions that do not exist yet
 * @param made.replaced functions that exist and belong to the table's owner. Their triggers stay
 */
export function makeFunctions({
  fresh = [],
  replaced = [],
}: {
  readonly fresh?: readonly OwnedFunction[]
  readonly replaced?: readonly OwnedFunction[]
}): string[] {
  const made = [...fresh, ...replaced]
  if (made.length === 0) return []
  const make = (create: string) => (source: OwnedFunction) =>
    `${create} ${called(source)} RETURNS trigger LANGUAGE plpgsql AS ${dollarQuote(source.body)}`
  const statements = [
    ...dropFunctions(fresh),
    ...fresh.map(make('CREATE FUNCTION')),
    ...replaced.map(make('CREATE OR REPLACE FUNCTION')),
    `DO ${dollarQuote(`
DECLARE
  command pg_catalog.text;
BEGIN${refuseForeignTables(made)}${secureFunctions(made)}
END
`)}`,
  ]
  return [statements.join(';\n')]
}

const called = ({ schema, name }: Pick<FunctionSource, 'schema' | 'name'>): string => `${qualified(schema, name)}()`

/**
 * The functions run as the table's owner, because a role that may only INSERT could not read a chain, and row security
 * would hide it. So no other role may own them or use them on a table, whatever default privileges grant. Names resolve
 * in a fixed path. Owner and schema are those of the database that runs the migration. If a role created a function
 * before, its extension may contain it, even after CREATE OR REPLACE. DROP EXTENSION would then drop our triggers.
 *
 * @see https://www.postgresql.org/docs/current/sql-createfunction.html#SQL-CREATEFUNCTION-SECURITY
 */
function secureFunctions(functions: readonly OwnedFunction[]): string {
  const settings = Object.entries(SETTINGS).map(([name, value]) => `SET ${name} TO ${value}`)
  const hasPath = functions.some(({ path }) => path)
  const rows = functions.map((one) => {
    const path = one.path ? [literal(qualified(one.path.schema, one.path.name))] : hasPath ? ['NULL'] : []
    return `(${[literal(called(one)), literal(one.relation), ...path].join(', ')})`
  })
  const home = (table: string): string => `${table}.relnamespace::pg_catalog.regnamespace`
  return `
  SELECT pg_catalog.string_agg(pg_catalog.format('%5$s REVOKE ALL ON FUNCTION %1$s FROM %2$s CASCADE;
      ALTER FUNCTION %1$s OWNER TO %3$s; ALTER FUNCTION %1$s SECURITY DEFINER
      ${settings.join(' ')} SET search_path TO pg_catalog, %4$s, pg_temp',
      f.oid::${PROCEDURE}, pg_catalog.concat_ws(', ', 'PUBLIC', (
        SELECT pg_catalog.string_agg(a.grantee::pg_catalog.regrole::pg_catalog.text, ', ')
        FROM pg_catalog.aclexplode(f.proacl) AS a
        WHERE a.grantee ${op('<>')} ALL (ARRAY[0::pg_catalog.oid, f.proowner]))),
      t.relowner::pg_catalog.regrole, ${hasPath ? `pg_catalog.concat_ws(', ', ${home('h')}, ${home('t')})` : home('t')}, (
        SELECT pg_catalog.string_agg(pg_catalog.format('ALTER EXTENSION %I DROP FUNCTION %s;',
          e.extname, f.oid::${PROCEDURE}), ' ')
        FROM pg_catalog.pg_depend AS d ${joinOf('pg_extension', 'e', 'd.refobjid')}
        WHERE d.classid ${EQUALS} f.tableoid AND d.objid ${EQUALS} f.oid
          AND d.refclassid ${EQUALS} e.tableoid AND d.deptype ${EQUALS} 'e')), '; ')
    INTO command
    FROM (VALUES
      ${rows.join(',\n      ')}) AS v (f, t${hasPath ? ', h' : ''})
    ${joinOf('pg_proc', 'f', `v.f::${PROCEDURE}`)}
    ${joinOf('pg_class', 't', 'v.t::pg_catalog.regclass')}${
      hasPath ? `\n    LEFT ${joinOf('pg_class', 'h', 'v.h::pg_catalog.regclass')}` : ''
    };
  EXECUTE command;`
}

/** Whether code on the table `k` may run as the owner of the table `t`: it runs when that owner writes to `k`. */
export const isTrustedBy = (k: string, t: string): string =>
  `pg_catalog.pg_has_role(${k}.relowner, ${t}.relowner, 'MEMBER')`

/** A role that may create tables in the schema could have created the table that functions write to. */
function refuseForeignTables(functions: readonly OwnedFunction[]): string {
  const rows = functions.flatMap(({ writes, relation }) =>
    writes ? [`(${literal(qualified(writes.schema, writes.name))}, ${literal(relation)})`] : [],
  )
  if (rows.length === 0) return ''
  return `
  SELECT pg_catalog.concat('the owner of ', v.k, ' may not act as the owner of ', v.t) INTO command FROM (VALUES
      ${list([...new Set(rows)], 6)}) AS v (k, t)
    ${joinOf('pg_class', 'k', 'pg_catalog.to_regclass(v.k)')}
    ${joinOf('pg_class', 't', 'v.t::pg_catalog.regclass')} AND NOT ${isTrustedBy('k', 't')};
  IF FOUND THEN RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.wrongState}', MESSAGE = command,
      HINT = 'See who made it and what it holds; then drop it, or give it to the owner of the other table.'; END IF;`
}

export const dropTrigger = (table: string, name: string): string => `DROP TRIGGER IF EXISTS ${quote(name)} ON ${table}`

export const dropFunctions = (functions: readonly Pick<FunctionSource, 'schema' | 'name'>[]): string[] =>
  functions.length === 0 ? [] : [`DROP FUNCTION IF EXISTS ${functions.map(called).join(', ')}`]

export const renameFunction = ({ schema, name }: Pick<FunctionSource, 'schema' | 'name'>, to: string): string =>
  `ALTER FUNCTION ${called({ schema, name })} RENAME TO ${quote(to)}`
