import type { Client } from 'pg'
import type { DataSource } from 'typeorm'
import { expect, test } from 'vitest'
import { findOrCreateMany } from '../../../src'
import { doctor } from '../../../src/doctor'
import { Name } from '../../../src/names'
import { url } from '../../../src/text'
import { column, deleteDate, entity, numberWithin, plain, text, uniqueName } from '../../support/entity'
import { generate, migrate } from '../../support/generated'
import { handles } from './entities'
import { ABOUT, type About, inShort, usePlanted } from './planted'
import { gatePart } from '../../support/gate-part'

/** How many faults the doctor sees together: those of as many tables that are declared alike. */
const ALIKE = 8
const copies = <Made>(make: (number: number) => Made): Made[] =>
  Array.from({ length: ALIKE }, (_, index) => make(index + 1))

const PAGES = copies((n) => entity(`Page${n}`, { url: text({ normalize: url() }), title: plain() }))
const USERS = copies((n) =>
  entity(`User${n}`, { handle: uniqueName({ namespace: 'handle', former: 'redirect', normalize: handles }) }),
)
const COMMENTS = copies((n) =>
  entity(`Comment${n}`, {
    page: column('text'),
    number: numberWithin({ scope: ['page'], count: true }),
    deletedAt: deleteDate(),
  }),
)
/** Tables like one of `ABOUT`, which take its faults. */
const LIKE: Readonly<Record<string, readonly (new () => object)[]>> = { Page: PAGES, User: USERS, Comment: COMMENTS }

const planted = usePlanted(Object.values(LIKE).flat(), async ({ manager }) => {
  const ten = Array.from({ length: 10 }, (_, index) => index)
  for (const Page of PAGES) {
    const rows = ten.map((index) => ({ url: `http://example.com/${index}` }))
    await findOrCreateMany(manager, Page, rows)
  }
  for (const [index, User] of USERS.entries()) {
    await manager.insert(
      User,
      ten.map((one) => ({ handle: `like${index} ${one}` })),
    )
    await manager.update(User, { id: 1 }, { handle: `like${index} renamed` })
  }
  for (const Comment of COMMENTS) {
    await manager.insert(
      Comment,
      ten.map((index) => ({ page: `p${index % 3}` })),
    )
    await manager.softDelete(Comment, { id: 1 })
  }
})

/** What was done, by which SQL, and what the doctor calls it. `{check page}` is the name of our check on that table. */
type Case = readonly [title: string, sql: string, ...codes: readonly string[]]

const CHECK = (table: string, condition: string, more = ''): string =>
  `alter table ${table} drop constraint {check ${table}}; alter table ${table} add constraint {check ${table}} check (${condition})${more}`
const INDEX = (table: string, kind: string, on: string): string =>
  `drop index {index ${table}}; create ${kind} index {index ${table}} on ${table} ${on}`
const PLACE = 'unique_text_page__url'
/** Makes a trigger anew with another definition. */
const TRIGGER = (table: string, name: string, change: string): string =>
  `do $$ declare d text; begin select pg_get_triggerdef(oid) into d from pg_trigger where tgrelid = '${table}'::regclass and tgname = '${name}';
   execute 'drop trigger ${name} on ${table}'; execute ${change}; end $$`
const BODY = (name: string, change: string): string =>
  `do $$ declare d text; begin select pg_get_functiondef('${name}()'::regprocedure) into d; execute ${change}; end $$`
const SCOPES = 'numbers_comment__number_scopes'

/** A migration mends them. */
const MENDED: Partial<Record<About, readonly Case[]>> = {
  texts: [
    ['a check that says or true', CHECK('page', `"urlHash" = md5(url)::uuid or true`), 'Page.url check.different'],
    [
      'a check that is not validated',
      `do $$ declare d text; begin select pg_get_constraintdef(oid) into d from pg_constraint where conname = {'check page'};
       alter table page drop constraint {check page}; execute 'alter table page add constraint {check page} ' || d || ' not valid'; end $$`,
      'Page.url check.invalid',
    ],
    ['no check', `alter table page drop constraint {check page}`, 'Page.url check.missing'],
    [
      'a check of a nullable text that allows a hash alone',
      CHECK('scoped', `"noteHash" is null or "noteHash" = sha256(convert_to(note, 'UTF8')) and "noteHashNumber" >= 0`),
      'Scoped.note check.different',
    ],
    ['no index', `drop index {index page}`, 'Page.url index.missing'],
    ['an index over another column', INDEX('page', 'unique', '(title)'), 'Page.url index.different'],
    ['an index that is not unique', INDEX('page', '', '("urlHash", "urlHashNumber")'), 'Page.url index.different'],
    [
      'an index with a condition',
      INDEX('page', 'unique', '("urlHash", "urlHashNumber") where id > 100'),
      'Page.url index.different',
    ],
    [
      'an index whose NULLs are equal',
      `delete from scoped where note is null; ` +
        INDEX('scoped', 'unique', '(tenant, "noteHash", "noteHashNumber") nulls not distinct'),
      'Scoped.note index.different',
    ],
    [
      'an index with another collation',
      INDEX('scoped', 'unique', '(tenant collate "POSIX", "noteHash", "noteHashNumber")'),
      'Scoped.note index.different',
    ],
    [
      'an index that a concurrent build has left invalid',
      `update pg_index set indisvalid = false where indexrelid = {'index page'}::regclass`,
      'Page.url index.invalid',
    ],
    ['a hash that may be NULL', `alter table page alter "urlHash" drop not null`, 'Page.url column.different'],
    ['a text that may be NULL', `alter table page alter url drop not null`, 'Page.url column.different'],
    ['a number without default', `alter table page alter "urlHashNumber" drop default`, 'Page.url column.different'],
    [
      'a trigger that is gone',
      `drop trigger ${PLACE}_place_insert on page`,
      'Page.url guard.missing',
      'Page.url text.unadopted',
    ],
    [
      'a trigger that is disabled',
      `alter table page disable trigger ${PLACE}_settle_delete`,
      'Page.url guard.disabled',
    ],
    [
      'a trigger for replicas only',
      `alter table page enable replica trigger ${PLACE}_place_insert`,
      'Page.url guard.disabled',
    ],
    ['all triggers disabled', `alter table page disable trigger user`, 'Page.url guard.disabled'],
    [
      'a trigger whose WHEN is never true',
      TRIGGER('page', `${PLACE}_settle_insert`, `regexp_replace(d, 'WHEN \\(.*\\) EXECUTE', 'WHEN (false) EXECUTE')`),
      'Page.url guard.different',
    ],
    [
      'a trigger with other arguments',
      TRIGGER('page', `${PLACE}_rest`, `replace(d, '"protocol": 1', '"protocol": 1, "maxChainLength": 9')`),
      'Page.url guard.missing',
      'Page.url text.unadopted',
    ],
    [
      'a trigger at another moment',
      TRIGGER('page', `${PLACE}_settle_insert`, `replace(d, 'AFTER INSERT', 'BEFORE INSERT')`),
      'Page.url guard.missing',
      'Page.url text.unadopted',
    ],
    [
      'a trigger for each statement',
      `drop trigger ${PLACE}_settle_delete on page; create trigger ${PLACE}_settle_delete after delete on page
       for each statement execute function unique_text_chain_v1()`,
      'Page.url guard.missing',
      'Page.url text.unadopted',
    ],
    [
      'a trigger that runs another function',
      `create function noop() returns trigger language plpgsql as 'begin return new; end';
       drop trigger ${PLACE}_place_insert on page; create trigger ${PLACE}_place_insert before insert on page
       for each row when (NEW."urlHash" is null) execute function noop()`,
      'Page.url guard.missing',
      'Page.url text.unadopted',
    ],
    [
      'a function with another body',
      BODY(PLACE, `replace(d, 'NEW."urlHashNumber" := -1', 'NEW."urlHashNumber" := 0')`),
      'Page.url guard.different',
    ],
    [
      'a function with another search_path',
      `alter function ${PLACE}() set search_path to public, pg_catalog`,
      'Page.url guard.different',
    ],
    ['a function with one more setting', `alter function ${PLACE}() set work_mem = '64kB'`, 'Page.url guard.different'],
    [
      'a function that PUBLIC may execute',
      `grant execute on function ${PLACE}() to public`,
      'Page.url guard.different',
    ],
    [
      'a function that a role may execute',
      `grant execute on function ${PLACE}() to pg_monitor`,
      'Page.url guard.different',
    ],
    ['a function of the caller', `alter function ${PLACE}() security invoker`, 'Page.url guard.different'],
    ['a function of another owner', `alter function ${PLACE}() owner to pg_monitor`, 'Page.url guard.different'],
    ['a function that is stable', `alter function ${PLACE}() stable`, 'Page.url guard.different'],
    ['a function that is strict', `alter function ${PLACE}() strict`, 'Page.url guard.different'],
    ['a function that is parallel safe', `alter function ${PLACE}() parallel safe`, 'Page.url guard.different'],
    [
      'a shared function with another body',
      BODY('unique_text_chain_v1', `replace(d, 'RETURN NULL', 'RETURN   NULL; RETURN NULL')`),
      'Page.url guard.different',
      'Scoped.note guard.different',
      'Soft.text guard.different',
      'Person.name guard.different',
    ],
    [
      'a shared function that PUBLIC may execute',
      `grant execute on function unique_text_chain_v1() to public`,
      'Page.url guard.different',
      'Scoped.note guard.different',
      'Soft.text guard.different',
      'Person.name guard.different',
    ],
    [
      'a trigger that belongs to an extension',
      `alter trigger ${PLACE}_rest on page depends on extension plpgsql`,
      'Page.url guard.different',
    ],
    [
      'a function that belongs to an extension',
      `alter extension plpgsql add function ${PLACE}()`,
      'Page.url guard.different',
    ],
  ],
  parts: [
    ['a partition with disabled triggers', `alter table {part} disable trigger user`, 'Shard.url guard.disabled'],
    [
      'a partition with one disabled trigger',
      `alter table {part} disable trigger unique_text_shard__url_settle_delete`,
      'Shard.url guard.disabled',
    ],
    [
      'all triggers of the partitioned table disabled',
      `alter table shard disable trigger user`,
      'Shard.url guard.disabled',
    ],
    ['a check of the right name with true, of all partitions', CHECK('shard', 'true'), 'Shard.url check.different'],
  ],
  names: [
    [
      'a trigger of names with another WHEN',
      TRIGGER('"user"', 'unique_name_user_update', `replace(d, 'IS NOT TRUE', 'IS NULL')`),
      'User trigger.different',
    ],
    [
      'a trigger of names with other transition tables',
      TRIGGER('"user"', 'unique_name_user_insert', `replace(d, 'new_rows', 'other_rows')`),
      'User trigger.different',
    ],
    ['a trigger of names that is gone', `drop trigger unique_name_user_delete on "user"`, 'User trigger.missing'],
    [
      'a trigger of names that is disabled',
      `alter table "user" disable trigger unique_name_user_truncate`,
      'User trigger.disabled',
    ],
    [
      'a function of names with another body',
      BODY('unique_name_user', `replace(d, 'RETURN NULL', 'RETURN   NULL; RETURN NULL')`),
      'User function.different',
    ],
    [
      'a function of names with another search_path',
      `alter function unique_name_user() set search_path to public`,
      'User function.different',
    ],
    [
      'a trigger of the table of names that is gone',
      `drop trigger unique_name_names_write on names`,
      'Name trigger.missing',
    ],
    [
      'a trigger of the table of names with another WHEN',
      TRIGGER('names', 'unique_name_names_write', `regexp_replace(d, 'WHEN \\(.*\\) EXECUTE', 'WHEN (false) EXECUTE')`),
      'Name trigger.different',
    ],
    ['the table of names with a check of true', CHECK('names', 'true'), 'Name.text check.different'],
    ['the table of names without its unique index', `drop index names_unique_index`, 'Name.text index.missing'],
    ['the table of names without the index of holders', `drop index names_holder_index`, 'Name index.missing'],
    [
      'an index of holders over another column',
      'drop index names_holder_index; create index names_holder_index on names (holder)',
      'Name index.different',
    ],
    [
      'the table of names without its primary key',
      `alter table names drop constraint {key names}`,
      'Name table.different',
    ],
    [
      'names whose state has another default',
      `alter table names alter state set default 'reserved'`,
      'Name column.different',
    ],
    ['names whose holder may be NULL', `alter table names alter holder drop not null`, 'Name column.different'],
  ],
  numbers: [
    ['a number that may be NULL', `alter table comment alter number drop not null`, 'Comment column.different'],
    ['a scope that may be NULL', `alter table comment alter page drop not null`, 'Comment column.different'],
    ['an index of numbers that is not unique', INDEX('comment', '', '(page, number)'), 'Comment index.different'],
    ['no index of numbers', `drop index {index comment}`, 'Comment index.missing'],
    [
      'an index of numbers with a condition',
      INDEX('comment', 'unique', '(page, number) where number > 5'),
      'Comment index.different',
    ],
    [
      'a trigger of numbers with another WHEN',
      TRIGGER('ticket', 'numbers_ticket__number_place_insert', `replace(d, 'IS NULL', 'IS NOT NULL')`),
      'Ticket trigger.different',
    ],
    [
      'a trigger of counts with other transition tables',
      TRIGGER('comment', 'numbers_comment__number_count_insert', `replace(d, 'AS came', 'AS arrived')`),
      'Comment trigger.different',
    ],
    [
      'a trigger of counts that is disabled',
      `alter table comment disable trigger numbers_comment__number_count_delete`,
      'Comment trigger.disabled',
    ],
    [
      'a function of numbers with another body',
      BODY('numbers_comment__number', `replace(d, 'RETURN NEW', 'RETURN   NEW; RETURN NEW')`),
      'Comment function.different',
    ],
    ['a table of scopes that is gone', `drop table ${SCOPES}`, 'Comment table.different'],
    [
      'a table of scopes without its primary key',
      `alter table ${SCOPES} drop constraint ${SCOPES}_pkey`,
      'Comment table.different',
    ],
    [
      'a table of scopes with another primary key',
      `alter table ${SCOPES} drop constraint ${SCOPES}_pkey, add primary key (n, s0)`,
      'Comment table.different',
    ],
    [
      'a table of scopes with another type',
      `alter table ${SCOPES} alter s0 type varchar(100)`,
      'Comment table.different',
    ],
    ['a table of scopes without its count', `alter table ${SCOPES} rename n to m`, 'Comment table.different'],
    ['a table of scopes of another owner', `alter table ${SCOPES} owner to pg_monitor`, 'Comment table.different'],
    [
      'a table of scopes without its trigger',
      `drop trigger restore_with_disable_triggers on ${SCOPES}`,
      'Comment table.different',
    ],
    [
      'a table of scopes whose trigger is disabled',
      `alter table ${SCOPES} disable trigger restore_with_disable_triggers`,
      'Comment table.different',
    ],
  ],
  tokens: [
    ['tokens with a check of true', CHECK('once_tokens', 'true'), 'OnceToken.token check.different'],
    ['tokens without their unique index', `drop index once_token_unique_index`, 'OnceToken.token index.missing'],
    ['tokens without the index of their end', `drop index once_token_expiry_index`, 'OnceToken index.missing'],
    [
      'tokens without their primary key',
      `alter table once_tokens drop constraint {key once_tokens}`,
      'OnceToken table.different',
    ],
    [
      'a guard of tokens that is disabled',
      `alter table once_tokens disable trigger user`,
      'OnceToken.token guard.disabled',
    ],
    ['URLs without the check of their parts', 'alter table urls drop constraint url_parts_check', 'Url check.missing'],
  ],
}

async function named(client: Client, sql: string): Promise<string> {
  const look = async (kind: string, table: string): Promise<string> => {
    const found = `select case when '${kind}' = 'part' then (select min(inhrelid::regclass::text) from pg_inherits where inhparent = '${table}'::regclass)
      when '${kind}' = 'index' then (select min(c.relname) from pg_index as i join pg_class as c on c.oid = indexrelid
        where indrelid = '${table}'::regclass and not indisprimary and (indisunique or c.relname like 'IDX%') and c.relname not like 'names_h%')
      else (select min(conname) from pg_constraint where conrelid = '${table}'::regclass and contype = left(replace('${kind}', 'key', 'p'), 1)) end as name`
    return (await client.query<{ name: string }>(found)).rows[0]?.name ?? ''
  }
  let made = sql.replaceAll('{part}', await look('part', 'shard'))
  for (const [all, quoted = '', kind = '', table = ''] of sql.matchAll(/\{('?)(\w+) ([^}']+)'?\}/g)) {
    const name = `"${await look(kind, table)}"`
    made = made.replaceAll(all, quoted === '' ? name : `'${kind === 'check' ? name.slice(1, -1) : name}'`)
  }
  return made
}

interface Fault {
  readonly title: string
  readonly sql: string
  readonly codes: readonly string[]
}

/** Faults of different tables, which the doctor sees together. */
interface Round {
  readonly entities: readonly (new () => object)[]
  readonly faults: readonly Fault[]
}

/** `Page` of `Page.url check.different`. */
const entityOf = (code: string): string => code.replace(/[. ].*/, '')

/** The same fault of a table that is declared alike. */
const onto = (like: string, { title, sql, codes }: Fault, number: number): Fault => ({
  title,
  sql: sql.replaceAll(new RegExp(`(?<![a-z])${like.toLowerCase()}(?![a-z])`, 'g'), `$&${number}`),
  codes: codes.map((code) => code.replace(like, `$&${number}`)),
})

/**
 * Faults of different tables are seen together. Those of what all tables have, a function or the table of names, are
 * alone: what mends one might mend another.
 */
function roundsOf(about: About, cases: readonly Case[]): Round[] {
  const alone: Round[] = []
  const together: { entities: (new () => object)[]; faults: Fault[] }[] = []
  const counts: Record<string, number> = {}
  for (const [title, sql, ...codes] of cases) {
    const [name = '', ...others] = new Set(codes.map(entityOf))
    const fault = { title, sql, codes }
    if (others.length > 0 || name === 'Name') {
      alone.push({ entities: ABOUT[about], faults: [fault] })
      continue
    }
    const count = counts[name] ?? 0
    counts[name] = count + 1
    const { length } = LIKE[name] ?? [name]
    const round = (together[Math.floor(count / length)] ??= { entities: about === 'names' ? [Name] : [], faults: [] })
    const [entity, planted] = placed(about, fault, name, count % length)
    round.entities.push(entity)
    round.faults.push(planted)
  }
  return [...together, ...alone]
}

/** The fault, of the table with this index among those that are declared alike. */
function placed(about: About, fault: Fault, name: string, index: number): [new () => object, Fault] {
  const copied = LIKE[name]?.[index]
  const entity = copied ?? ABOUT[about].find((one) => one.name === name)
  if (!entity) throw new TypeError(`There is no entity "${name}" among the ${about}.`)
  return [entity, copied ? onto(name, fault, index + 1) : fault]
}

/** Each fault with what is found of its table, and what is found of others. */
async function foundOf(dataSource: DataSource, faults: readonly Fault[]): Promise<Record<string, readonly string[]>> {
  const { findings } = await doctor(dataSource)
  const errors = inShort(findings.filter(({ severity }) => severity === 'error'))
  const of = (error: string): string =>
    faults.find(({ codes }) => codes.map(entityOf).includes(entityOf(error)))?.title ?? 'no fault'
  const found = Object.fromEntries(faults.map(({ title }): [string, string[]] => [title, []]))
  for (const error of errors.toSorted()) (found[of(error)] ??= []).push(error)
  return found
}

const ROUNDS = Object.entries(MENDED).flatMap(([about, cases]) =>
  roundsOf(about as About, cases).map(
    (round) => [`${about}: ${round.faults.map(({ title }) => title).join(', ')}`, round] as const,
  ),
)

test.each(gatePart(5, ROUNDS))('a migration mends %s', async (_, { entities, faults }) => {
  const copy = await planted.fresh()
  const { client } = copy
  const { rows } = await client.query<{ version: number }>(
    `select current_setting('server_version_num')::int as version`,
  )
  // Postgres 14 has no such indexes.
  const hasNulls = (rows[0]?.version ?? 0) >= 150_000
  const planting = faults.filter(({ sql }) => hasNulls || !sql.includes('nulls not distinct'))
  await client.query(`set allow_system_table_mods = on`)
  for (const { sql } of planting) await client.query(await named(client, sql))
  const dataSource = await copy.dataSource(entities)
  expect(await foundOf(dataSource, planting)).toEqual(
    Object.fromEntries(planting.map(({ title, codes }) => [title, codes.toSorted()])),
  )
  await migrate(dataSource)
  expect(await foundOf(dataSource, planting)).toEqual(Object.fromEntries(planting.map(({ title }) => [title, []])))
  expect((await generate(dataSource)).up).toEqual([])
  await dataSource.destroy()
  planted.keep()
})
