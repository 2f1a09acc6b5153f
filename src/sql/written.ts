import { createCheck, createIndex, type NamedIndex } from './alter'
import type { Query } from './catalog'
import { dollarQuote } from './identifier'
import { endsConnection, serverError, SQLSTATE } from './sqlstate'
import { EQUALS, joinOf, type TextRows } from './text-table'

/** An object that the server stores in its own words. */
export interface Wording {
  /** `check` or `index`, followed by the name. The triggers that an object makes have `trigger` and their names. */
  readonly key: string
  /** Creates the object with another name, on a table that has the same columns. */
  readonly make: (table: string, name: string) => string
}

export const wordedCheck = (rows: TextRows): Wording => ({
  key: `check ${rows.check}`,
  make: (table, name) => createCheck(table, name, rows),
})

export const wordedIndex = (index: NamedIndex): Wording => ({
  key: `index ${index.name}`,
  make: (table, name) => createIndex(table, name, index),
})

const QUOTED = `"[^"]*"|'[^']*'`
/** Quotes are skipped as a whole, because a column may have the name of a keyword. */
const UNQUOTED = `(?:${QUOTED}|[^"'])*?`
const BEFORE_WHEN = new RegExp(`^${UNQUOTED} WHEN \\((${UNQUOTED})\\) EXECUTE FUNCTION `, 'u')
const BEFORE_METHOD = new RegExp(`^${UNQUOTED} USING `, 'u')
const STORAGE = new RegExp(`(${QUOTED})| WITH \\([^()]*\\)`, 'gu')

/** Returns the part of a definition that is compared: without the name, the table and the storage of an index. */
export const wordsOf = (definition: string): string =>
  BEFORE_WHEN.exec(definition)?.[1] ?? definition.replace(BEFORE_METHOD, '').replaceAll(STORAGE, '$1')

const LOOKALIKE = 'unique_text_lookalike'

const RELATION = `'pg_temp.${LOOKALIKE}'::pg_catalog.regclass`

const READ = `SELECT c.conname::pg_catalog.text AS name, pg_catalog.pg_get_expr(c.conbin, c.conrelid) AS words
  FROM pg_catalog.pg_constraint AS c WHERE c.conrelid ${EQUALS} ${RELATION} AND c.contype ${EQUALS} 'c'
UNION ALL SELECT c.relname::pg_catalog.text, pg_catalog.pg_get_indexdef(i.indexrelid)
  FROM pg_catalog.pg_index AS i ${joinOf('pg_class', 'c', 'i.indexrelid')}
 WHERE i.indrelid ${EQUALS} ${RELATION}
UNION ALL SELECT t.tgname::pg_catalog.text, pg_catalog.pg_get_triggerdef(t.oid, true)
  FROM pg_catalog.pg_trigger AS t WHERE t.tgrelid ${EQUALS} ${RELATION}`

/**
 * Returns the wanted objects in the words that the server would store, by their keys. The words depend on the server's
 * version and on the types of columns. A temporary table with the same columns receives the objects and is rolled back.
 * An object that cannot be created, because a column is missing, has no words.
 *
 * @param relation the table's name as SQL
 * @param within whether a transaction is open, which then continues
 * @returns undefined on a standby, and for a role that may not create temporary tables
 */
export async function writtenAs(
  query: Query,
  { relation, within }: { readonly relation: string; readonly within: boolean },
  wanted: readonly Wording[],
): Promise<ReadonlyMap<string, string> | undefined> {
  const made = wanted.map(
    ({ make }, position) => `
  BEGIN
    ${make(`pg_temp.${LOOKALIKE}`, `w${position}`)};
  EXCEPTION WHEN OTHERS THEN
  END;`,
  )
  const look = `DO ${dollarQuote(`
BEGIN
  CREATE TEMPORARY TABLE ${LOOKALIKE} (LIKE ${relation});${made.join('')}
END
`)}`
  let words: ReadonlyMap<string, string> | undefined
  await undone(query, within, async () => {
    await query(look)
    const rows = (await query(READ)) as readonly { readonly name: string; readonly words: string }[]
    words = new Map(
      rows.map((one) => [wanted[Number(one.name.slice(1))]?.key ?? `trigger ${one.name}`, wordsOf(one.words)]),
    )
  })
  return words
}

/** @returns the SQLSTATE of an error of the server */
async function undone(query: Query, within: boolean, work: () => Promise<void>): Promise<string | undefined> {
  const [begin, end] = within
    ? [`SAVEPOINT ${LOOKALIKE}`, [`ROLLBACK TO SAVEPOINT ${LOOKALIKE}`, `RELEASE SAVEPOINT ${LOOKALIKE}`]]
    : // This also works if transactions of a role or a database are read-only by default.
      ['START TRANSACTION READ WRITE', ['ROLLBACK']]
  let refusal: string | undefined
  try {
    await query(begin)
    await work()
  } catch (error) {
    refusal = serverError(error)?.code
    if (refusal === undefined || endsConnection(error)) {
      await send(query, end).catch(() => undefined)
      throw error
    }
  }
  await send(query, end)
  return refusal
}

const TRIAL = `DO ${dollarQuote(`
BEGIN
  CREATE TEMPORARY TABLE ${LOOKALIKE} (given pg_catalog.jsonb DEFAULT pg_catalog.jsonb_build_object('a', 1));
  CREATE FUNCTION pg_temp.${LOOKALIKE}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $trial$ DECLARE one CONSTANT jsonb := TG_ARGV[0]; BEGIN RETURN NEW; END $trial$;
  CREATE TRIGGER one BEFORE INSERT ON pg_temp.${LOOKALIKE} FOR EACH ROW WHEN (NEW.given IS NOT NULL)
    EXECUTE FUNCTION pg_temp.${LOOKALIKE}('{}');
  CREATE TRIGGER two AFTER INSERT ON pg_temp.${LOOKALIKE} REFERENCING NEW TABLE AS made FOR EACH STATEMENT
    EXECUTE FUNCTION pg_temp.${LOOKALIKE}('{}');
  INSERT INTO pg_temp.${LOOKALIKE} DEFAULT VALUES;
END
`)}`

/**
 * Tries what our triggers need, and undoes it. A server may call itself PostgreSQL and lack a part of it.
 *
 * @returns the SQLSTATE by which the server says that it does not have it
 */
export async function triggersLack(query: Query, within: boolean): Promise<string | undefined> {
  const refusal = await undone(query, within, async () => void (await query(TRIAL)))
  return refusal !== undefined && refusal !== SQLSTATE.insufficientPrivilege && /^(?:0A|42)/.test(refusal)
    ? refusal
    : undefined
}

async function send(query: Query, statements: readonly string[]): Promise<void> {
  for (const one of statements) await query(one)
}
