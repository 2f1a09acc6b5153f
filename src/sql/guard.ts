import { createHash } from 'node:crypto'
import { dollarQuote, fitName, literal, qualified, quote } from './identifier'
import { placeBody, settleBody } from './guard-functions'
import { type GuardTrigger, guardTriggers } from './guard-triggers'
import { type TextTable, tableName } from './text-table'

/** Raised when a change of the protocol makes an installed guard wrong; part of the guard's comment. */
const PROTOCOL_VERSION = 1

/** Starts the comment by which guards are found in the catalog, also those whose declaration is gone. */
export const GUARD_COMMENT_PREFIX = 'typeorm-unique-text guard '

/** The guard of one text, as statements. */
export interface Guard {
  readonly table: { readonly schema: string | undefined; readonly name: string }
  /** BEFORE: computes the hash and takes the place in the chain. Carries the comment that identifies the guard. */
  readonly place: string
  /** AFTER: touches and promotes. */
  readonly settle: string
  readonly comment: string
  readonly triggers: readonly GuardTrigger[]
  readonly create: readonly string[]
  readonly drop: readonly string[]
}

/** Every statement that makes and removes the guard; what each does is in docs/protocol.md. */
export function guardOf(table: TextTable): Guard {
  const [place, settle] = [fitName(`${table.guard}_place`), fitName(`${table.guard}_settle`)]
  const bodies = [placeBody(table), settleBody(table)] as const
  const triggers = guardTriggers(table, place, settle)
  const comment = guardComment(table, [...bodies, ...triggers.map(({ create }) => create)])
  return {
    table: { schema: table.schema, name: table.table },
    place,
    settle,
    comment,
    triggers,
    create: [
      ...createFunction(table, place, bodies[0]),
      ...createFunction(table, settle, bodies[1]),
      ...triggers.map(({ create }) => create),
      ...[place, settle].map((name) => commentOnFunction(qualified(table.schema, name), comment)),
    ],
    drop: [
      ...triggers.map(({ name }) => dropTrigger(tableName(table), name)),
      ...[place, settle].map((name) => dropFunction(qualified(table.schema, name))),
    ],
  }
}

export const dropTrigger = (table: string, name: string): string => `DROP TRIGGER IF EXISTS ${quote(name)} ON ${table}`

export const dropFunction = (name: string): string => `DROP FUNCTION IF EXISTS ${name}()`

export const commentOnFunction = (name: string, comment: string): string =>
  `COMMENT ON FUNCTION ${name}() IS ${literal(comment)}`

/** What of a declaration the rows depend on, as the comment on the guard's functions holds it. */
const NOTED = [
  'name',
  'text',
  'normalizers',
  'scope',
  'nullable',
  'hash',
  'number',
  'chained',
  'index',
  'check',
] as const

/**
 * What the comment on the guard's functions says, as JSON: enough to find a drift, to follow a renamed column, and to
 * make the rows anew as they were.
 */
export interface GuardNote extends Pick<TextTable, (typeof NOTED)[number]> {
  readonly protocol: number
  /** Digest of everything that is installed. */
  readonly source: string
  /** The name of the digest. */
  readonly digest: string
}

function guardComment(table: TextTable, sources: readonly string[]): string {
  const source = createHash('sha256').update(sources.join('\n')).digest('hex').slice(0, 16)
  const noted = Object.fromEntries(NOTED.map((key) => [key, table[key]]))
  return (
    GUARD_COMMENT_PREFIX + JSON.stringify({ protocol: PROTOCOL_VERSION, source, digest: table.digest.name, ...noted })
  )
}

/** undefined where the comment is not ours, or of a version that wrote something else. */
export function parseGuardComment(comment: string): GuardNote | undefined {
  if (!comment.startsWith(GUARD_COMMENT_PREFIX)) return undefined
  try {
    const note = JSON.parse(comment.slice(GUARD_COMMENT_PREFIX.length)) as GuardNote
    return note.protocol === PROTOCOL_VERSION ? note : undefined
  } catch {
    return undefined
  }
}

/**
 * The functions run as the table's owner (SECURITY DEFINER): a role that may only INSERT could not read the chain, and
 * under row security the chain would be invisible though the index refuses. So they must resolve names in a fixed
 * path, with pg_temp last, and must not be put on other tables by others.
 * @see https://www.postgresql.org/docs/current/sql-createfunction.html#SQL-CREATEFUNCTION-SECURITY
 */
export function createFunction(table: Pick<TextTable, 'schema' | 'table'>, name: string, body: string): string[] {
  const called = `${qualified(table.schema, name)}()`
  const relation = literal(qualified(table.schema, table.table))
  const finish = `
DECLARE
  home name;
  owner name;
BEGIN
  SELECT n.nspname, pg_catalog.pg_get_userbyid(c.relowner) INTO home, owner
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.oid = ${relation}::pg_catalog.regclass;
  EXECUTE pg_catalog.format('ALTER FUNCTION %s SET search_path TO pg_catalog, %I, pg_temp', ${literal(called)}, home);
  IF owner <> current_user THEN
    EXECUTE pg_catalog.format('ALTER FUNCTION %s OWNER TO %I', ${literal(called)}, owner);
  END IF;
END
`
  return [
    // Plans are cached while the table is tiny; without the setting a bulk insert goes on with its sequential scans.
    `CREATE OR REPLACE FUNCTION ${called} RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER ` +
      `SET enable_seqscan TO off AS ${dollarQuote(body)}`,
    `REVOKE ALL ON FUNCTION ${called} FROM PUBLIC`,
    `DO ${dollarQuote(finish)}`,
  ]
}
