import type { Client } from 'pg'
import {
  Column,
  type DataSource,
  Entity,
  type EntityManager,
  JoinColumn,
  ManyToOne,
  PrimaryColumn,
  PrimaryGeneratedColumn,
  Raw,
} from 'typeorm'
import { beforeAll, describe, expect, test } from 'vitest'
import { insertOrFail, TextTakenError, UniqueText, updateOrFail } from '../../../src'
import { doctor } from '../../../src/doctor'
import {
  findHolder,
  findOrCreateHolder,
  formerNamesOf,
  Name,
  releaseExpired,
  rename,
  swapNames,
  UniqueName,
} from '../../../src/names'
import { copyIn } from '../../stress/copy-in'
import { hasCitus, useCluster } from '../../support/citus'
import { generate, migrate, runAll } from '../../support/generated'
import { STEVENS } from '../../support/md5-collisions'

@Entity('tenant')
class Tenant {
  @PrimaryColumn('int') id!: number
}

class OfTenant {
  @PrimaryGeneratedColumn() id!: number
  @Column('int', { default: 1 }) tenant!: number
  @ManyToOne(() => Tenant) @JoinColumn({ name: 'tenant' }) of?: Tenant
}

@Entity('Odd  member 100%s')
class Member extends OfTenant {
  @UniqueName({ namespace: 'handle', former: 'redirect', citus: 'local' }) handle!: string
  @UniqueName({ namespace: 'alias', nullable: true, former: { reserveFor: '1 day' } }) alias!: string | null
}

/** Its table stays outside of Citus. */
@Entity('club')
class Club {
  @PrimaryGeneratedColumn() id!: number
  @UniqueName({ namespace: 'handle' }) handle!: string
}

const TABLE = '"Odd  member 100%s"'

/** What contradicts the table of names, of the rows of both tables. */
const FAULTS = `WITH wanted AS (
    SELECT '${TABLE}'::regclass AS holder, 'handle' AS property, jsonb_build_array(id) AS key, handle AS text FROM ${TABLE}
    UNION ALL SELECT '${TABLE}'::regclass, 'alias', jsonb_build_array(id), alias FROM ${TABLE} WHERE alias IS NOT NULL
    UNION ALL SELECT 'club'::regclass, 'handle', jsonb_build_array(id), handle FROM club
  ), held AS (SELECT holder, holder_column AS property, holder_key AS key, text FROM names WHERE state = 'held')
  (SELECT 'no name' AS fault, * FROM (TABLE wanted EXCEPT TABLE held) AS a)
  UNION ALL (SELECT 'no row', * FROM (TABLE held EXCEPT TABLE wanted) AS b)`

describe.runIf(hasCitus)('names of a table that Citus keeps local', () => {
  const cluster = useCluster()
  let dataSource: DataSource
  let manager: EntityManager
  let client: Client

  beforeAll(async () => {
    dataSource = await cluster.dataSource([Tenant, Member, Club, Name])
    manager = dataSource.manager
    client = await cluster.client()
    await dataSource.synchronize()
    await client.query(`INSERT INTO tenant VALUES (1), (2); SELECT create_reference_table('tenant')`)
    const { rows } = await client.query(`SELECT logicalrelid::text AS name FROM pg_dist_partition ORDER BY 1`)
    expect(rows).toStrictEqual([{ name: TABLE }, { name: 'tenant' }])
  }, 60_000)

  const sound = async (): Promise<void> => {
    expect(await manager.query(FAULTS)).toStrictEqual([])
  }
  const whoHas = async (handle: string, former = true): Promise<unknown> => {
    const holder = await findHolder(manager, 'handle', handle, { former })
    return holder && [holder.entityName, holder.id['id'], holder.name]
  }

  test('come, change, redirect and go with their rows', async () => {
    const ada = await manager.save(manager.create(Member, { handle: 'ada', alias: 'countess' }))
    expect(await whoHas('ada')).toEqual(['Member', ada.id, 'ada'])
    await rename(manager, Member, ada.id, { handle: 'lovelace' })
    await updateOrFail(manager, Member, ada.id, { alias: 'enchantress' })
    expect(await whoHas('ada')).toEqual(['Member', ada.id, 'lovelace'])
    expect(await whoHas('ada', false)).toBeNull()
    expect(await findHolder(manager, 'handle', 'lovelace', { entity: true })).toMatchObject({ entity: { id: ada.id } })
    expect(await formerNamesOf(manager, Member, ada.id)).toMatchObject([
      { name: 'countess', property: 'alias', state: 'reserved' },
      { name: 'ada', property: 'handle', state: 'redirect', until: null },
    ])
    await sound()
    await manager.remove(ada)
    expect(await whoHas('lovelace')).toBeNull()
    expect(await manager.countBy(Name, { holder: Raw((holder) => `${holder} = '${TABLE}'::regclass`) })).toBe(0)
  })

  test('are refused to others, of either table, with the holder', async () => {
    const [ada, bob] = await manager.save([
      manager.create(Member, { handle: 'ada2', alias: null }),
      manager.create(Member, { handle: 'bob2', alias: null }),
    ])
    await rename(manager, Member, ada?.id as number, { handle: 'ada3' })
    const taken = await insertOrFail(manager, Member, [
      { handle: 'bob2', alias: null },
      { handle: 'ada2', alias: null },
    ]).catch((one: unknown) => one)
    expect(taken).toBeInstanceOf(TextTakenError)
    expect(taken).toMatchObject({
      taken: expect.arrayContaining([
        expect.objectContaining({ property: 'handle', id: { id: bob?.id } }),
        expect.objectContaining({ property: 'handle', id: { id: ada?.id }, state: 'redirect' }),
      ]) as unknown,
    })
    await expect(manager.save(manager.create(Club, { handle: 'bob2' }))).rejects.toMatchObject({ code: 'TEXT_TAKEN' })
    await manager.save(manager.create(Club, { handle: 'guild' }))
    await expect(rename(manager, Member, bob?.id as number, { handle: 'guild' })).rejects.toMatchObject({
      code: 'TEXT_TAKEN',
    })
    await sound()
  })

  test('are swapped by one statement, and taken back', async () => {
    const [a, b] = await manager.save(['sa', 'sb'].map((handle) => manager.create(Member, { handle, alias: null })))
    const [first, second] = [a?.id as number, b?.id as number]
    await swapNames(manager, Member, first, second, { by: 'handle' })
    expect(await whoHas('sa')).toEqual(['Member', second, 'sa'])
    await client.query(`UPDATE ${TABLE} SET handle = CASE id WHEN ${first} THEN 'sa' ELSE 'sb' END
      WHERE id IN (${first}, ${second})`)
    expect(await whoHas('sa')).toEqual(['Member', first, 'sa'])
    await rename(manager, Member, first, { handle: 'sc' })
    await rename(manager, Member, first, { handle: 'sa' })
    expect(await whoHas('sc')).toEqual(['Member', first, 'sa'])
    await sound()
  })

  test('are found or created, by many at once', async () => {
    const calls = Array.from({ length: 24 }, (_, index) =>
      findOrCreateHolder(manager, Member, { handle: `many ${index % 6}`, alias: null }, { by: 'handle' }),
    )
    expect((await Promise.all(calls)).filter(({ created }) => created)).toHaveLength(6)
    await sound()
  })

  test('follow COPY, a bulk update, changed keys, and texts of equal hash', async () => {
    await copyIn(client, `COPY ${TABLE} (id, handle) FROM STDIN`, ['9001\tc1', '9002\tc2', '9003\tc3'])
    await client.query(`UPDATE ${TABLE} SET handle = 'x' || handle, alias = handle WHERE id > 9000`)
    await sound()
    await client.query(`UPDATE ${TABLE} SET id = id + 100, handle = 'y' || handle WHERE id > 9000`)
    expect(await whoHas('xc2')).toEqual(['Member', 9102, 'yxc2'])
    await manager.save(STEVENS.map((handle) => manager.create(Member, { handle, alias: null })))
    for (const handle of STEVENS) expect(await whoHas(handle)).toMatchObject(['Member', expect.any(Number), handle])
    await expect(copyIn(client, `COPY ${TABLE} (handle) FROM STDIN`, ['yxc2'])).rejects.toMatchObject({
      // Citus gives every error of COPY this code.
      code: 'XX000',
      message: expect.stringContaining('names_unique_index') as string,
    })
    await client.query(`WITH gone AS (DELETE FROM ${TABLE} WHERE id > 9000 RETURNING handle) TABLE gone`)
    expect(await whoHas('yxc2')).toBeNull()
    await sound()
  })

  test("see what a user's own trigger makes of a row", async () => {
    await client.query(`CREATE FUNCTION louder() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN NEW.handle := upper(NEW.handle); RETURN NEW; END $$`)
    await client.query(`CREATE TRIGGER louder BEFORE INSERT OR UPDATE ON ${TABLE} FOR EACH ROW
      WHEN (NEW.handle LIKE 'loud%') EXECUTE FUNCTION louder()`)
    const { id } = await manager.save(manager.create(Member, { handle: 'loud 1', alias: null }))
    await rename(manager, Member, id, { handle: 'loud 2' })
    expect(await whoHas('LOUD 1')).toEqual(['Member', id, 'LOUD 2'])
    await client.query(`DROP TRIGGER louder ON ${TABLE}`)
    await sound()
  })

  test.each(['REPEATABLE READ', 'SERIALIZABLE'] as const)('wait for each other at %s', async (level) => {
    const other = await cluster.client()
    for (const one of [client, other]) await one.query(`BEGIN ISOLATION LEVEL ${level}`)
    for (const one of [client, other]) await one.query('SELECT count(*) FROM names')
    await client.query(`INSERT INTO ${TABLE} (handle) VALUES ('race ${level}')`)
    const waits = other.query(`INSERT INTO ${TABLE} (handle) VALUES ('race ${level}')`).catch((one: unknown) => one)
    await client.query('COMMIT')
    expect(await waits).toMatchObject({ code: '40001' })
    await other.query('ROLLBACK')
    await sound()
  })

  test('follow rows that a client writes through a worker; our calls want the coordinator', async () => {
    const worker = await cluster.client(1)
    await worker.query(`INSERT INTO ${TABLE} (id, handle) VALUES (8001, 'w1'), (8002, 'w2')`)
    await worker.query(`UPDATE ${TABLE} SET handle = 'w3' WHERE handle = 'w2'`)
    await worker.query(`DELETE FROM ${TABLE} WHERE handle = 'w1'`)
    await expect(worker.query(`INSERT INTO ${TABLE} (id, handle) VALUES (8003, 'w3')`)).rejects.toMatchObject({
      code: '23505',
    })
    expect(await whoHas('w2')).toEqual(['Member', 8002, 'w3'])
    await expect(worker.query(`TRUNCATE ${TABLE}`)).rejects.toThrow('names')
    await sound()
    const through = await cluster.dataSource([Tenant, Member, Club, Name], 1)
    await expect(through.manager.save(through.manager.create(Member, { handle: 'w4' }))).rejects.toThrow(
      'which only the coordinator has',
    )
  })

  test('are in order for the doctor, and expire', async () => {
    const { findings } = await doctor(dataSource, { entities: [Member, Name] })
    expect(findings.filter(({ severity }) => severity === 'error')).toStrictEqual([])
    await client.query(`INSERT INTO names (namespace, text, holder, holder_column, holder_key, state)
      VALUES ('handle', 'kept', '${TABLE}', 'handle', '[1]', 'reserved')`)
    await client.query(`UPDATE names SET until = now() - interval '1 day' WHERE text = 'kept'`)
    expect(await releaseExpired(manager)).toBe(1)
  })

  test('stay where the table leaves Citus and comes again, while the application runs', async () => {
    const before = await manager.findOneByOrFail(Member, { handle: 'race SERIALIZABLE' })
    const use = async (text: string): Promise<void> => {
      const one = await manager.save(manager.create(Member, { handle: text, alias: null }))
      await rename(manager, Member, one.id, { handle: `${text} 2` })
      expect(await whoHas(text)).toEqual(['Member', one.id, `${text} 2`])
      expect(await whoHas('race SERIALIZABLE')).toEqual(['Member', before.id, 'race SERIALIZABLE'])
      await expect(manager.save(manager.create(Member, { handle: `${text} 2` }))).rejects.toMatchObject({
        code: 'TEXT_TAKEN',
      })
      await sound()
    }
    await use('first')
    const [{ name }] = await manager.query(
      `SELECT conname AS name FROM pg_constraint WHERE conrelid = '${TABLE}'::regclass AND contype = 'f'`,
    )
    await client.query(`ALTER TABLE ${TABLE} DROP CONSTRAINT "${name}"`)
    expect(await manager.query(`SELECT FROM pg_dist_partition WHERE logicalrelid = '${TABLE}'::regclass`)).toEqual([])
    await use('plain')
    await client.query(`SELECT citus_add_local_table_to_metadata('${TABLE}')`)
    await use('local')
    await client.query(`SELECT undistribute_table('${TABLE}')`)
    await use('plain again')
    await client.query(`ALTER TABLE ${TABLE} ADD CONSTRAINT "${name}" FOREIGN KEY (tenant) REFERENCES tenant`)
    await use('local again')
    await client.query(`TRUNCATE ${TABLE}`)
    expect(await manager.countBy(Name, { holder: Raw((holder) => `${holder} = '${TABLE}'::regclass`) })).toBe(0)
    await sound()
  })

  // The last test: the table has an identity, and Citus does not undistribute one.
  test('are refused where Citus manages their own table', async () => {
    await client.query(`SELECT citus_add_local_table_to_metadata('names')`)
    const reason = '"handle" is kept in "names", which Citus manages'
    const save = (): Promise<unknown> => manager.save(manager.create(Member, { handle: 'no', alias: null }))
    await expect(save()).rejects.toThrow(reason)
    await expect(manager.save(manager.create(Club, { handle: 'no' }))).rejects.toThrow(reason)
    const { findings } = await doctor(dataSource, { entities: [Club] })
    expect(findings).toContainEqual(
      expect.objectContaining({ code: 'table.spread', detail: expect.stringContaining(reason) as string }),
    )
  })
})

@Entity('guest')
class Guest {
  @PrimaryGeneratedColumn() id!: number
  @Column('text') handle!: string
}

@Entity('guest')
class NamedGuest {
  @PrimaryGeneratedColumn() id!: number
  @UniqueName({ namespace: 'guest', former: 'redirect', citus: 'local' }) handle!: string
}

@Entity('guest')
class RenamedGuest {
  @PrimaryGeneratedColumn() id!: number
  @UniqueName({ namespace: 'guest', former: 'redirect', citus: 'local' }) nick!: string
}

@Entity('guest')
class TextGuest {
  @PrimaryGeneratedColumn() id!: number
  @UniqueText() handle!: string
}

describe.runIf(hasCitus)('migrations of a table that Citus keeps local, with rows', () => {
  const cluster = useCluster()

  const held = async (client: Client): Promise<unknown> =>
    (
      await client.query<{ held: string }>(
        `SELECT text || ' ' || holder_column || ' ' || state AS held FROM names ORDER BY 1`,
      )
    ).rows.map((row) => row.held)

  test('are refused for a text and for a name', async () => {
    const client = await cluster.client()
    await migrate(await cluster.dataSource([Guest, Name]))
    await client.query(`SELECT citus_add_local_table_to_metadata('guest')`)
    await client.query(`INSERT INTO guest (handle) VALUES ('a'), ('b')`)
    const named = await cluster.dataSource([NamedGuest, Name])
    await expect(generate(named)).rejects.toThrow('undistribute_table')
    await expect(generate(await cluster.dataSource([TextGuest, Name]))).rejects.toThrow('undistribute_table')
  })

  test('are run by the recipe, up and down, and the names go along', async () => {
    const client = await cluster.client()
    const [leave, enter] = [`SELECT undistribute_table('guest')`, `SELECT citus_add_local_table_to_metadata('guest')`]
    const named = await cluster.dataSource([NamedGuest, Name])
    await client.query(leave)
    const first = await migrate(named)
    await client.query(enter)
    expect((await generate(named)).up).toStrictEqual([])
    await rename(named.manager, NamedGuest, 1, { handle: 'c' })
    expect(await held(client)).toStrictEqual(['a handle redirect', 'b handle held', 'c handle held'])
    const renamed = await cluster.dataSource([RenamedGuest, Name])
    await client.query(leave)
    const second = await migrate(renamed)
    await client.query(enter)
    expect(await held(client)).toStrictEqual(['a nick redirect', 'b nick held', 'c nick held'])
    await rename(renamed.manager, RenamedGuest, 2, { nick: 'd' })
    await client.query(leave)
    await runAll(renamed, second.down)
    await client.query(enter)
    expect(await held(client)).toStrictEqual([
      'a handle redirect',
      'b handle redirect',
      'c handle held',
      'd handle held',
    ])
    await client.query(leave)
    await runAll(named, first.down)
    expect(await held(client)).toStrictEqual([])
  })
})
