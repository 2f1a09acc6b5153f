import { createHash } from 'node:crypto'
import type { Change, FilledColumn } from './alter'
import { dollarQuote, list, literal, packed, qualified, quote, withoutComments } from './identifier'
import { SQLSTATE } from './sqlstate'
import { EQUALS, joinOf, op } from './text-table'

/** The type of functions with their arguments. */
const PROCEDURE = 'pg_catalog.regprocedure'

/** What keeps rows right: the texts of a column, the names that rows hold, or the numbers that they have. */
export type TriggerKind = 'guard' | 'names' | 'numbers'

/** Starts the body of every function of a set; by it the function is found, whatever became of its name. */
export const TRIGGER_MARK = '-- typeorm-unique-text '

/** How the names of a text's triggers begin, also of those that an adoption makes for a while. */
export const TEXT_TRIGGERS = 'unique_text_'

/** Follows the mark in a function that stands once in a schema, for all tables of their owner. */
const KERNEL = 'kernel'

/** Bits of `pg_trigger.tgtype`. A trigger without `row` fires once for each statement, and one without `before` after it. */
export const FIRES = { row: 1, before: 2, insert: 4, delete: 8, update: 16, truncate: 32 } as const

/** Few enough to be read, enough to tell two statements apart. */
const DIGEST_DIGITS = 8

/** A trigger, as it should stand. */
export interface Trigger {
  readonly name: string
  /** The function's name. */
  readonly runs: string
  /** The value of `pg_trigger.tgtype`: a sum of `FIRES`. */
  readonly type: number
  /** It has a WHEN. */
  readonly conditional: boolean
  /** The columns that it must name, in this order. undefined: whichever. */
  readonly columns?: readonly string[]
  /** The columns that its condition names, in any order. undefined: whichever. */
  readonly compares?: readonly string[]
  /** The condition of its WHEN, as SQL; empty for none. undefined: whichever. */
  readonly when?: string
  /** What the function is given. undefined: whichever. */
  readonly args?: readonly string[]
  /** What follows REFERENCING; empty for nothing. undefined: whichever. */
  readonly transitions?: string
  /** The whole CREATE TRIGGER statement. */
  readonly create: string
}

/** When a trigger fires, and what it runs. */
export interface Firing {
  readonly name: string
  readonly time: 'BEFORE' | 'AFTER'
  /** The last one is of the columns, where some are named. */
  readonly events: readonly Exclude<keyof typeof FIRES, 'row' | 'before'>[]
  /** The columns of `UPDATE OF`. @default []: whichever */
  readonly columns?: readonly string[]
  /** @default 'ROW' */
  readonly each?: 'ROW' | 'STATEMENT'
  /** Transition tables. */
  readonly referencing?: string
  /**
   * For an OR. As short as can be: the server parses and plans it once for each statement that writes to the table, and
   * it is false for practically every row. What else must hold, the function looks at.
   */
  readonly when?: readonly string[]
  /** A function in the table's schema. */
  readonly runs: string
  /** @default [] */
  readonly args?: readonly string[]
}

/** A function that triggers run, as it should stand in the table's schema. */
export interface TriggerFunction {
  readonly name: string
  readonly body: string
}

/** A table that a set keeps, as it should exist. */
export interface KeptTable {
  readonly name: string
  /** Their types; of those that have the type of a column of the set's table, that column. */
  readonly columns: Readonly<Record<string, string | { readonly like: string }>>
  readonly primary: readonly string[]
  /** A trigger of the table itself. */
  readonly trigger: string | undefined
}

/** Triggers of one table and the functions that they run, as they should stand. */
export interface TriggerSet {
  readonly kind: TriggerKind
  /** Tells it from others of its kind on the table; it stays where the table is renamed. */
  readonly name: string
  readonly table: RelationName
  /** A table of another schema whose name the functions find too. */
  readonly path: RelationName | undefined
  /** A table that its functions write to as the owner of theirs. */
  readonly writes: RelationName | undefined
  /** The columns that the set works on, by their part in it. A renamed one is followed. */
  readonly columns: Readonly<Record<string, string>>
  /** Tables that its functions keep to themselves, in the table's schema; of its owner. */
  readonly tables: readonly KeptTable[]
  /** What the body of the first function says. */
  readonly note: TriggerNote
  /** The oldest protocol of an installed set that this release can work with. */
  readonly accepts: number
  /** The body of the first one holds the note. */
  readonly functions: readonly TriggerFunction[]
  /** Functions that all tables of the schema share: triggers run them by the table and the arguments they come with. */
  readonly kernel: readonly TriggerFunction[]
  readonly triggers: readonly (Trigger & { readonly digest: string })[]
  /** Every statement that makes the set, and every one that removes it. */
  readonly create: readonly string[]
  readonly drop: readonly string[]
}

/**
 * What the body of the first function of a set says, as JSON in a comment: what the catalog does not show, and what is to
 * be known of a set that nobody declares any more. Comments of the catalog would not do: a dump may leave them out, and
 * they do not reach other nodes of a cluster.
 */
export interface TriggerNote {
  readonly kind: TriggerKind
  readonly name: string
  /** Raised when a change of what the triggers do makes an installed set wrong. */
  readonly protocol: number
  /** The oldest protocol of a release that can work with this set. @default protocol */
  readonly serves?: number
  readonly path?: RelationName
  readonly columns?: Readonly<Record<string, string>>
  /** `adopt` is not done with the rows: nobody may rely on the set yet. */
  readonly adopting?: boolean
  /** Digests of the statements that made the triggers: the server gives a condition back in words of its own. */
  readonly triggers: readonly string[]
}

/** What becomes of the rows when a set of triggers goes that nobody declares any more; its triggers are gone by then. */
export interface RemovedRows {
  readonly change?: Change
  /** Columns that go with the set where no entity declares them, and on the way back get their values from `fill`. */
  readonly filled?: readonly FilledColumn[]
  readonly fill?: readonly string[]
}

/** The table as it is by now. */
export interface RemovedFrom {
  readonly schema: string | undefined
  readonly table: string
  /** Columns of the primary key. */
  readonly primary: readonly string[]
}

/** What a set is made of. */
export interface TriggerSetParts {
  readonly kind: TriggerKind
  readonly name: string
  readonly table: RelationName
  /** For a table whose schema its entity leaves out, while that of the triggers is in another one. */
  readonly path?: RelationName | undefined
  /** A table of its own that the functions write to. */
  readonly writes?: RelationName | undefined
  /** @default {} */
  readonly columns?: Readonly<Record<string, string>>
  /** @default [] */
  readonly tables?: readonly KeptTable[]
  /** The page that says what the functions do, as their first line tells. */
  readonly docs: string
  readonly functions: readonly {
    readonly name: string
    readonly body: string
    /** A sentence that says what it does, for a comment. */
    readonly says: string
  }[]
  /** @default [] */
  readonly kernel?: readonly TriggerFunction[]
  /** For a table in this schema, which is undefined where `search_path` decides. */
  readonly triggers: (schema: string | undefined) => readonly Trigger[]
  /** @default the note's protocol */
  readonly accepts?: number
  /** What the note is to hold besides; members that are undefined are left out. */
  readonly note: Readonly<Record<string, unknown>> & { readonly protocol: number }
}

/** Puts marks, notes and digests onto triggers and their functions, so that they are found and compared. */
export function triggerSet({ kind, name, table, columns, kernel = [], ...parts }: TriggerSetParts): TriggerSet {
  const relation = qualified(table.schema, table.name)
  const triggers = parts.triggers(table.schema)
  // Without the schema: a DataSource that names it and one that leaves it out mean the same triggers.
  const digests = parts
    .triggers(undefined)
    .map(({ create }) => createHash('sha256').update(withoutComments(create)).digest('hex').slice(0, DIGEST_DIGITS))
  const { protocol, ...rest } = parts.note
  const noted = { protocol, kind, name, path: parts.path, columns, ...rest, triggers: digests }
  const members = Object.entries(noted).filter(([, value]) => value !== undefined)
  const note = Object.fromEntries(members) as unknown as TriggerNote
  // In lines, so that a migration can be read.
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
  const shared = kernel.map((one) => ({ ...one, schema: table.schema, relation }))
  const shares = shared.map((source) => ({ relation, source }))
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
    kernel,
    triggers: triggers.map((one, index) => ({ ...one, digest: digests[index] ?? '' })),
    create: [...makeFunctions({ fresh: sources, kernel: shared, shares }), ...triggers.map(({ create }) => create)],
    drop: [...triggers.map((one) => dropTrigger(relation, one.name)), ...dropFunctions(sources), ...dropKernel(shared)],
  }
}

/** Tables that the functions of a set find beside its own, as SQL. */
export const otherTables = ({ path, writes }: TriggerSet): string[] =>
  [path, writes].flatMap((one) => (one ? qualified(one.schema, one.name) : []))

const TRIGGER_LINE_CHARACTERS = 116

/** Every trigger of every set is made here. */
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
    conditional: when.length > 0,
    ...(columns.length > 0 ? { columns } : {}),
    when: when.join(' OR '),
    args,
    transitions: referencing,
    create,
  }
}

const headOf = (kind: string, docs: string): string =>
  `\n${TRIGGER_MARK}${kind}: generated, do not edit; see ${docs} of the repository.`

/** A function of the kernel, with its mark. Its name holds its version: two releases may have one each. */
export const kernelFunction = (name: string, docs: string, body: string): TriggerFunction => ({
  name,
  body: `${headOf(KERNEL, docs)}${body}`,
})

/** Whether a body is that of a function which all tables of a schema share. */
export const isKernel = (body: string): boolean => body.trimStart().startsWith(`${TRIGGER_MARK}${KERNEL}`)

/** undefined where the body holds no note. */
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

/** A table; without a schema `search_path` decides. */
export interface RelationName {
  readonly schema: string | undefined
  readonly name: string
}

/** A function that triggers run, and the schema it stands in; undefined: `search_path` decides. */
export interface FunctionSource {
  readonly schema: string | undefined
  readonly name: string
  readonly body: string
  /** A table of another schema whose name it finds too, before those of the schema that its own table is in. */
  readonly path?: RelationName | undefined
  /** A table that it writes to as the owner of its own. */
  readonly writes?: RelationName | undefined
}

/**
 * Settings that every function runs under.
 *
 * - `enable_seqscan`: plans are cached while the table is tiny; a bulk insert would go on with sequential scans.
 * - `row_security`: a policy that would hide a chain, by FORCE or from another owner, is an error 42501, not a gap.
 * - `search_path` ends with `pg_temp`: nobody can put a temporary object in the way of the owner. It holds the table's
 *   schema for triggers of the user's that our UPDATEs run: ours name the schema of whatever an attacker could make.
 */
const SETTINGS = { enable_seqscan: 'off', row_security: 'off' } as const

/** What `pg_proc.proconfig` must hold, without its quotes, for functions that find names in these schemas. */
export const functionSettings = (homes: readonly string[]): string[] => [
  ...Object.entries(SETTINGS).map(([name, value]) => `${name}=${value}`),
  `search_path=${['pg_catalog', ...homes, 'pg_temp'].join(', ').replaceAll('"', '')}`,
]

/** A function, and the table whose owner it is to run as; as SQL. */
export interface OwnedFunction extends FunctionSource {
  readonly relation: string
}

/** What is made of functions at once. */
interface MadeFunctions {
  /** The functions that do not exist yet. */
  readonly fresh?: readonly OwnedFunction[]
  /** The functions that exist and belong to the table's owner; their triggers stay. */
  readonly replaced?: readonly OwnedFunction[]
  /** The functions that all tables of an owner share, whether or not they exist. */
  readonly kernel?: readonly OwnedFunction[]
  /** Tables that are to get triggers of functions which all tables of an owner share. */
  readonly shares?: readonly SharedFunction[]
}

/** A function that all tables of an owner share, and a table that is to run it; as SQL. */
export interface SharedFunction {
  readonly relation: string
  readonly source: Pick<FunctionSource, 'schema' | 'name'>
}

/**
 * Makes functions and secures them, as one string: the server runs it as one transaction, also where a migration has
 * none. So nobody puts a function on a table before it is secured, and none runs as an owner on a path of others.
 *
 * A fresh one is dropped, not replaced: CREATE OR REPLACE would keep its owner and what the owner granted, and that role
 * could put a body of its own into it.
 */
export function makeFunctions({ fresh = [], replaced = [], kernel = [], shares = [] }: MadeFunctions): string[] {
  const made = [...kernel, ...fresh, ...replaced]
  const isShared = shares.length > 0
  if (made.length === 0 && !isShared) return []
  const models: OwnedFunction[] = []
  const alike: string[] = []
  // A migration of many tables holds each body once.
  const make = (create: string) => (source: OwnedFunction) => {
    for (const model of models) {
      const words = otherWords(model.body, source.body)
      if (!words) continue
      alike.push(`(${literal(called(source))}, ${literal(called(model))},\n        '${words}')`)
      return []
    }
    models.push(source)
    return [`${create} ${called(source)} ${IN_PLPGSQL} ${dollarQuote(source.body)}`]
  }
  const statements = [
    ...dropFunctions(fresh),
    ...fresh.flatMap(make('CREATE FUNCTION')),
    ...[...replaced, ...kernel].flatMap(make('CREATE OR REPLACE FUNCTION')),
    ...(alike.length === 0 ? [] : [createAlike(alike)]),
    `DO ${dollarQuote(`
DECLARE
  command pg_catalog.text;${isShared ? `\n  other pg_catalog.regclass;\n  shared ${PROCEDURE};` : ''}
BEGIN${kernel.length === 0 ? '' : REFUSE_OTHER_ENCODINGS}${made.length === 0 ? '' : `${refuseForeignTables(made)}${secureFunctions(made)}`}${
      isShared ? refuseOtherOwners(shares) : ''
    }
END
`)}`,
  ]
  return [statements.join(';\n')]
}

const called = ({ schema, name }: Pick<FunctionSource, 'schema' | 'name'>): string => `${qualified(schema, name)}()`

const IN_PLPGSQL = 'RETURNS trigger LANGUAGE plpgsql AS'

/** Shorter bodies are written as they are. */
const LONG_BODY = 500

/** Only ASCII: the server and JavaScript see the same words there. */
const ASCII = /^[\t\n -~]*$/

/**
 * Finds the words that make one body of another. Whether they do is tried here, because names may be such that they do not.
 *
 * @returns in pairs, what a word of the model becomes; undefined if the body is to be written
 */
function otherWords(model: string, body: string): string | undefined {
  if (body.length < LONG_BODY || !ASCII.test(model + body)) return undefined
  const to = body.match(/\w+/g)
  const others = model.match(/\w+/g)?.map((word, index): [string, string] => [word, to?.[index] ?? ''])
  const words = [...new Map(others?.filter(([word, other]) => word !== other))]
  const made = words.reduce((text, [word, other]) => text.replaceAll(new RegExp(`\\b${word}\\b`, 'g'), other), model)
  const meaning = (text: string): string => withoutComments(text) + JSON.stringify(parseNote(text))
  const pairs = words.flat()
  return meaning(made) === meaning(body) && pairs.join(' ').length < body.length / 2
    ? packed(pairs, ' ', 100).join('\n        ')
    : undefined
}

/** @param rows a function, the function whose body its own resembles, and the words that differ */
const createAlike = (rows: readonly string[]): string =>
  `DO ${dollarQuote(`
DECLARE
  one pg_catalog.record;
BEGIN
  -- f has the body of model in other words: pairs of a word and what it becomes.
  FOR one IN
    SELECT v.f, p.prosrc AS body, pg_catalog.regexp_split_to_array(v.words, '[[:space:]]+') AS words FROM (VALUES
      ${rows.join(',\n      ')}) AS v (f, model, words)
    ${joinOf('pg_proc', 'p', `v.model::${PROCEDURE}`)}
  LOOP
    FOR word IN 1 .. pg_catalog.cardinality(one.words) BY 2 LOOP
      one.body := pg_catalog.regexp_replace(one.body,
        pg_catalog.concat('[[:<:]]', one.words[word], '[[:>:]]'), one.words[word ${op('+')} 1], 'g');
    END LOOP;
    EXECUTE pg_catalog.format('CREATE OR REPLACE FUNCTION %s ${IN_PLPGSQL} %L', one.f, one.body);
  END LOOP;
END
`)}`

const REFUSE_OTHER_ENCODINGS = `
  IF pg_catalog.current_setting('server_encoding') ${op('<>')} 'UTF8' THEN
    RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = 'the encoding of the database must be UTF8';
  END IF;`

/**
 * They run as the table's owner, because a role that may only INSERT could not read a chain, and row security would hide
 * it. So nobody else may own them or put them on a table, whatever default privileges have granted, and names resolve in
 * a fixed path. Owner and schema are those of the database that a migration runs on. A function that a role made before
 * can be a member of its extension, whose DROP would remove our triggers: CREATE OR REPLACE keeps that.
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

/** Whether code on the table of `pg_class` `k` may run as the owner of the table `t`: it runs when that owner writes. */
export const isTrustedBy = (k: string, t: string): string =>
  `pg_catalog.pg_has_role(${k}.relowner, ${t}.relowner, 'MEMBER')`

/** Who may create in the schema can have made the table first that functions write to. */
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

/**
 * Refuses tables that run a shared function, or are to, and do not belong to its owner: a trigger that the table's owner
 * makes runs in the UPDATEs of that function, as the function's owner.
 */
function refuseOtherOwners(shares: readonly SharedFunction[]): string {
  const functions = new Map<string, string[]>()
  for (const { source, relation } of shares) {
    functions.set(called(source), [...(functions.get(called(source)) ?? []), literal(relation)])
  }
  // Functions that the same tables share are asked for together.
  const groups = new Map<string, string[]>()
  for (const [name, tables] of functions) {
    const all = list([...new Set(tables)], 10)
    groups.set(all, [...(groups.get(all) ?? []), literal(name)])
  }
  const refusals = [...groups].map(
    ([tables, names]) => `
  SELECT c.oid, f.oid INTO other, shared
    FROM pg_catalog.pg_proc AS f JOIN pg_catalog.pg_class AS c ON c.relowner ${op('<>')} f.proowner
      AND (c.oid ${EQUALS} ANY (ARRAY[
          ${tables}
        ]::pg_catalog.regclass[])
        OR EXISTS (SELECT FROM pg_catalog.pg_trigger AS g
          WHERE g.tgrelid ${EQUALS} c.oid AND g.tgfoid ${EQUALS} f.oid))
    WHERE f.oid ${EQUALS} ANY (ARRAY[
        ${list(names, 8)}
      ]::${PROCEDURE}[])
    ORDER BY f.oid, c.oid LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.wrongState}', MESSAGE = pg_catalog.format(
        'table %s and function %s, which its triggers would run, have different owners', other, shared),
      HINT = 'Give them one owner, or put one of them into another schema.';
  END IF;`,
  )
  return refusals.join('')
}

/** Drops the shared functions that no table uses any more. */
export function dropKernel(sources: readonly Pick<FunctionSource, 'schema' | 'name'>[]): string[] {
  if (sources.length === 0) return []
  const procedures = sources.map((one) => `pg_catalog.to_regprocedure(${literal(called(one))})`)
  return [
    `DO ${dollarQuote(`
DECLARE
  one ${PROCEDURE};
BEGIN
  FOR one IN
    SELECT f.oid FROM pg_catalog.pg_proc AS f
    WHERE f.oid ${EQUALS} ANY (ARRAY[
        ${list(procedures, 8)}
      ]) AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger AS g WHERE g.tgfoid ${EQUALS} f.oid)
  LOOP
    EXECUTE pg_catalog.format('DROP FUNCTION %s', one);
  END LOOP;
END
`)}`,
  ]
}

export const dropTrigger = (table: string, name: string): string => `DROP TRIGGER IF EXISTS ${quote(name)} ON ${table}`

export const dropFunctions = (functions: readonly Pick<FunctionSource, 'schema' | 'name'>[]): string[] =>
  functions.length === 0 ? [] : [`DROP FUNCTION IF EXISTS ${functions.map(called).join(', ')}`]

export const renameFunction = ({ schema, name }: Pick<FunctionSource, 'schema' | 'name'>, to: string): string =>
  `ALTER FUNCTION ${called({ schema, name })} RENAME TO ${quote(to)}`
