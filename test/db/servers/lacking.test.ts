import { expect, test } from 'vitest'
import { UnsupportedDatabaseError } from '../../../src'
import { useDatabase } from '../../support/database'
import { Page } from '../../support/entities'
import { generate } from '../../support/generated'

/** Databases whose server calls itself PostgreSQL, as some do that are not, and lacks a part of it. */
const db = useDatabase()

/** What an event trigger says of a command that the server does not have. */
const WITHOUT = (command: string): string =>
  `create function no_${command.toLowerCase()}() returns event_trigger language plpgsql as
     $$ begin raise feature_not_supported; end $$;
   create event trigger no_${command.toLowerCase()} on ddl_command_start when tag in ('CREATE ${command}')
     execute function no_${command.toLowerCase()}()`

test.each([
  ['no triggers', WITHOUT('TRIGGER'), `drop event trigger no_trigger`],
  ['no functions', WITHOUT('FUNCTION'), `drop event trigger no_function`],
  [
    'no jsonb',
    'alter function pg_catalog.jsonb_build_object("any") rename to built',
    'alter function pg_catalog.built("any") rename to jsonb_build_object',
  ],
  [
    'no PL/pgSQL',
    `update pg_language set lanname = 'pl' where lanname = 'plpgsql'`,
    `update pg_language set lanname = 'plpgsql' where lanname = 'pl'`,
  ],
])('%s: refused when a migration is generated, and nothing is left', async (_, without, back) => {
  const client = await db.client()
  const dataSource = await db.dataSource([Page], { synchronize: false })
  await client.query(`set allow_system_table_mods = on`)
  await client.query(without)
  try {
    await expect(generate(dataSource)).rejects.toBeInstanceOf(UnsupportedDatabaseError)
    await expect(dataSource.synchronize()).rejects.toBeInstanceOf(UnsupportedDatabaseError)
  } finally {
    await client.query(back)
  }
  expect((await generate(dataSource)).up.join()).toContain('unique_text_attach_v1')
})
