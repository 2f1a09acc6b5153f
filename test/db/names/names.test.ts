import {
  BaseEntity,
  ChildEntity,
  Column,
  DataSource,
  DeleteDateColumn,
  Entity,
  EntityNotFoundError,
  EntitySchema,
  ManyToOne,
  PrimaryGeneratedColumn,
  QueryFailedError,
  TableInheritance,
  UpdateDateColumn,
  VersionColumn,
} from 'typeorm'
import { describe, expect, test } from 'vitest'
import type { FindOrCreateManyResult } from '../../../src'
import {
  DeclarationError,
  findOrCreate,
  findOrCreateMany,
  insertOrFail,
  SchemaDriftError,
  TextRejectedError,
  TextTakenError,
  UniqueText,
  updateOrFail,
  upsertByText,
} from '../../../src'
import {
  findHolder,
  findOrCreateHolder,
  Name,
  releaseExpired,
  rename,
  swapNames,
  UniqueName,
  uniqueNameSchema,
} from '../../../src/names'
import { lowerCase } from '../../../src/text'
import { useDatabase } from '../../support/database'
import { entity, key, plain, uniqueName, uuidKey } from '../../support/entity'
import { STEVENS } from '../../support/md5-collisions'
import { rejection } from '../../support/ledger'

const HANDLE = { namespace: 'handle', normalize: lowerCase() } as const

const Organization = entity('Organization', {
  id: uuidKey(),
  handle: uniqueName({ ...HANDLE, former: 'reserve' }),
  title: plain(),
})
type Organization = InstanceType<typeof Organization>

@Entity({ name: 'user' })
class User extends BaseEntity {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueName({ ...HANDLE, former: 'redirect' }) handle!: string
  @UniqueName({ namespace: 'nick', nullable: true, name: 'nick_name' }) nick!: string | null
  @UniqueText({ nullable: true }) email!: string | null
  @ManyToOne(() => Organization, { nullable: true, onDelete: 'CASCADE', eager: true })
  organization!: Organization | null
  @DeleteDateColumn() deletedAt!: Date | null
  @VersionColumn() version!: number
  @UpdateDateColumn() changedAt!: Date
}

const Seat = entity('Seat', {
  hall: key('bigint'),
  row: key('text'),
  handle: uniqueName({ ...HANDLE, former: { redirectFor: '1 year' } }),
})

@Entity({ name: 'animal' })
@TableInheritance({ column: { type: 'varchar', name: 'kind' } })
class Animal {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @Column({ type: 'text', nullable: true }) color!: string | null
}

@ChildEntity()
class Cat extends Animal {
  @UniqueName(HANDLE) handle!: string
}

@ChildEntity()
class Dog extends Animal {
  @Column({ type: 'integer', nullable: true }) tricks!: number | null
}

const Place = new EntitySchema<{ id: number; handle: string; city: string | null }>(
  uniqueNameSchema(
    {
      name: 'place',
      columns: {
        id: { type: 'integer', primary: true, generated: true },
        city: { type: 'text', nullable: true },
      },
    },
    { handle: { ...HANDLE, former: { reserveFor: '90 days' } } },
  ),
)

const db = useDatabase()
const ENTITIES = [Name, User, Organization, Seat, Animal, Cat, Dog, Place]
const dataSource = db.useDataSource(ENTITIES)
const { manager } = dataSource

/** What the table of names holds, as `handle ada → user.handle [1]`; its state where it is not held. */
async function kept(): Promise<string[]> {
  const rows = await dataSource.getRepository(Name).find({ order: { namespace: 'ASC', text: 'ASC' } })
  return rows.map(({ namespace, text, holder, property, key, state }) => {
    const suffix = state === 'held' ? '' : ` ${state}`
    const list = key.map((one) => (typeof one === 'string' && one.length === 36 ? 'uuid' : one))
    return `${namespace} ${text} → ${holder.replaceAll('"', '')}.${property} ${JSON.stringify(list)}${suffix}`
  })
}

describe("TypeORM's own calls", () => {
  test('save, update and remove claim, change and release the name with the row', async () => {
    const ada = await User.create({ handle: 'Ada', nick: 'a' }).save()
    expect(await kept()).toEqual(['handle ada → user.handle [1]', 'nick a → user.nick_name [1]'])
    ada.handle = 'Lovelace'
    ada.nick = null
    await ada.save()
    expect(await kept()).toEqual(['handle ada → user.handle [1] redirect', 'handle lovelace → user.handle [1]'])
    await User.update({ handle: 'LOVELACE' }, { handle: 'ADA' })
    expect(await kept()).toEqual(['handle ada → user.handle [1]', 'handle lovelace → user.handle [1] redirect'])
    await User.createQueryBuilder().delete().where({ handle: 'Ada' }).execute()
    expect(await kept()).toEqual([])
  })

  test('a name is unique over all entities of its namespace, and who is refused hears who has it', async () => {
    const ada = await User.save({ handle: 'ada' } as User)
    const error = await rejection(dataSource.getRepository(Organization).save({ handle: 'ADA' }))
    expect(error).toBeInstanceOf(TextTakenError)
    expect(error).toBeInstanceOf(QueryFailedError)
    expect(error).toMatchObject({
      message:
        'Taken: "handle" of Organization (held by a row of User). Use the row that holds the text, or give another text.',
      taken: [{ entity: 'Organization', property: 'handle', id: { id: ada.id }, row: 0, holder: 'User' }],
    })
    await dataSource.getRepository(Seat).save({ hall: '9007199254740993', row: 'b', handle: 'seat' })
    const other = await rejection(User.insert({ handle: 'seat' }))
    expect(other).toMatchObject({ taken: [{ holder: 'Seat', id: { hall: '9007199254740993', row: 'b' } }] })
    const raw = await rejection(dataSource.query(`INSERT INTO place (handle) VALUES ('x'), ('ada'), ('seat')`))
    expect(raw).toBeInstanceOf(TextTakenError)
    expect((raw as TextTakenError).taken.map(({ entity, holder }) => `${entity} ${holder}`).toSorted()).toEqual([
      'place Seat',
      'place User',
    ])
    expect((raw as Error).message, 'it is not known which rows').not.toContain('row 0')
    expect(await kept()).toHaveLength(2)
  })

  test('a name and its own kept former one do not refuse the row itself', async () => {
    const organizations = dataSource.getRepository(Organization)
    const one = await organizations.save({ handle: 'one' })
    await organizations.update(one.id, { handle: 'two' })
    const error = await rejection(User.save({ handle: 'one' } as User))
    expect(error).toMatchObject({
      taken: [{ entity: 'User', id: { id: one.id }, holder: 'Organization', state: 'reserved' }],
    })
    expect((error as Error).message).toContain('a former name, kept for a row of Organization')
    await organizations.save({ id: one.id, handle: 'One' })
    expect(await kept()).toEqual([
      'handle one → organization.handle ["uuid"]',
      'handle two → organization.handle ["uuid"] reserved',
    ])
  })

  test('a row that is softly deleted keeps its name', async () => {
    const ada = await User.create({ handle: 'ada' }).save()
    await ada.softRemove()
    await expect(User.insert({ handle: 'ada' })).rejects.toThrow(TextTakenError)
    expect(await findHolder(manager, 'handle', 'ada', { entity: true })).toMatchObject({ id: { id: ada.id } })
    await User.getRepository().restore(ada.id)
    expect(await kept()).toEqual(['handle ada → user.handle [1]'])
  })

  test("TypeORM's upsert by a name says what to call", async () => {
    const error = await rejection(manager.upsert(User, { email: 'x@y.z', handle: 'by name' }, ['handle']))
    expect(error).toMatchObject({ code: 'INVALID_DECLARATION', driverError: { code: '42P10' } })
    expect(String(error)).toMatch(/upsert\(\) of User by "handle".*findOrCreateHolder\(\)/)
  })

  test('an upsert by a unique text changes the name of the row that is there', async () => {
    await upsertByText(manager, User, { email: 'a@b.c', handle: 'Ada' })
    const { entity, created } = await upsertByText(manager, User, { email: 'a@b.c', handle: 'Grace' })
    expect({ created, handle: entity.handle }).toEqual({ created: false, handle: 'grace' })
    await User.insert({ handle: 'ada2' })
    const error = await rejection(upsertByText(manager, User, { email: 'a@b.c', handle: 'ada2' }))
    expect(error).toMatchObject({ name: 'TextTakenError', taken: [{ property: 'handle', id: { id: 2 } }] })
    const create = await rejection(findOrCreate(manager, User, { email: 'd@e.f', handle: 'ada2' }))
    expect(create).toMatchObject({ name: 'TextTakenError', taken: [{ property: 'handle', id: { id: 2 } }] })
  })
})

describe('a text and a name of one entity', () => {
  test('find-or-create by the text leaves the transaction usable where the name is taken', async () => {
    await dataSource.getRepository(Organization).save({ handle: 'org' })
    await dataSource.transaction(async (inside) => {
      const error = await rejection(findOrCreate(inside, User, { email: 'a@b', handle: 'org' }))
      expect(error).toMatchObject({ taken: [{ entity: 'User', property: 'handle', holder: 'Organization' }] })
      const { created } = await findOrCreate(inside, User, { email: 'a@b', handle: 'free' })
      expect(created).toBe(true)
    })
    expect(await kept()).toHaveLength(2)
  })

  test('in a batch, a row whose name is taken has its error and the others are stored', async () => {
    await dataSource.getRepository(Organization).save({ handle: 'n3' })
    const inputs = Array.from({ length: 20 }, (_, nth) => ({ email: `${nth}@x`, handle: `n${nth}` }))
    const errors = (results: readonly FindOrCreateManyResult<User>[]): unknown[] =>
      results.flatMap((one, nth) => ('error' in one ? [[nth, one.error.name]] : []))
    expect(errors(await findOrCreateMany(manager, User, inputs))).toEqual([[3, 'TextTakenError']])
    expect(errors(await upsertByText(manager, User, inputs))).toEqual([[3, 'TextTakenError']])
    expect(await User.count()).toBe(19)
  })
})

describe('findHolder', () => {
  test.each(['ISO, MDY', 'SQL, DMY', 'German, DMY', 'Postgres, MDY'])(
    'reads its dates under DateStyle %s',
    async (style) => {
      await dataSource.getRepository(Organization).save({ handle: 'org' })
      await dataSource.query(`update names set since = '2020-02-01 10:20:30.123+00', until = '2020-03-02 00:00+00'`)
      await dataSource.transaction(async (inside) => {
        await inside.query(`set local datestyle to ${style}; set local timezone to 'Asia/Kolkata'`)
        expect(await findHolder(inside, 'handle', 'org')).toMatchObject({
          since: new Date('2020-02-01T10:20:30.123Z'),
          until: new Date('2020-03-02T00:00:00Z'),
        })
      })
    },
  )

  test('gives entity, key and, on wish, the entity of any holder of the namespace, in one round trip', async () => {
    const organization = await dataSource.getRepository(Organization).save({ handle: 'Org', title: 'T' })
    const user = await User.save({ handle: 'Ada', organization } as User)
    await dataSource.getRepository(Seat).save({ hall: '9007199254740993', row: 'b', handle: 'seat' })
    await dataSource.getRepository(Cat).save({ handle: 'Tom', color: 'black' })
    await dataSource.getRepository(Place).save({ handle: 'Here', city: 'X' })
    const since = expect.any(Date)
    const common = { since, former: false, until: null, property: 'handle' }
    expect(await findHolder(manager, 'handle', 'ORG')).toEqual({
      ...common,
      target: Organization,
      entityName: 'Organization',
      id: { id: organization.id },
      name: 'org',
    })
    const ofUser = await findHolder(manager, 'handle', 'ada', { entity: true })
    expect(ofUser?.entity).toBeInstanceOf(User)
    expect(ofUser?.entity).toEqual(await User.findOneBy({ id: user.id }))
    expect(ofUser?.entity).toMatchObject({ organization: { id: organization.id } })
    expect(await findHolder(manager, 'handle', 'seat', { entity: true })).toEqual({
      ...common,
      target: Seat,
      entityName: 'Seat',
      id: { hall: '9007199254740993', row: 'b' },
      name: 'seat',
      entity: { hall: '9007199254740993', row: 'b', handle: 'seat' },
    })
    const ofCat = await findHolder(manager, 'handle', 'tom', { entity: true })
    expect(ofCat).toMatchObject({ target: Cat, entityName: 'Cat', entity: { handle: 'tom', color: 'black' } })
    expect(ofCat?.entity).toBeInstanceOf(Cat)
    const ofPlace = await findHolder(manager, 'handle', 'here', { entity: true })
    expect(ofPlace).toMatchObject({ entityName: 'place', entity: { id: 1, handle: 'here', city: 'X' } })
  })

  test('a name that nobody holds, that is refused, or of no text is found by nobody', async () => {
    expect(await findHolder(manager, 'handle', 'nobody')).toBeNull()
    expect(await findHolder(manager, 'handle', 'a\0')).toBeNull()
    await expect(findHolder(manager, 'handle', 7 as never)).rejects.toThrow(TextRejectedError)
    await expect(findHolder(manager, 'other', 'a')).rejects.toThrow(
      'no entity of this DataSource has the namespace "other". It has "handle", "nick".',
    )
    await expect(findHolder(manager, 'handle', 'a', { formr: true } as never)).rejects.toThrow('no option "formr"')
    await expect(findHolder(dataSource as never, 'handle', 'a')).rejects.toThrow(DeclarationError)
  })

  test('a text of equal hash, and the same one in another namespace, are other names', async () => {
    const [one, two] = STEVENS
    await User.save([{ handle: 'a', nick: one }] as User[])
    expect(await findHolder(manager, 'nick', one)).toMatchObject({ property: 'nick' })
    expect(await findHolder(manager, 'nick', two)).toBeNull()
    expect(await findHolder(manager, 'nick', 'a')).toBeNull()
  })

  test('by a former name that redirects it finds the holder and the present name; by a reserved one nobody', async () => {
    const user = await User.save({ handle: 'one', nick: 'n' } as User)
    await dataSource.getRepository(Place).save({ handle: 'place' })
    await rename(manager, User, user.id, { handle: 'two' })
    await rename(manager, User, user.id, { handle: 'three' })
    expect(await findHolder(manager, 'handle', 'ONE')).toBeNull()
    expect(await findHolder(manager, 'handle', 'ONE', { former: true, entity: true })).toMatchObject({
      target: User,
      id: { id: user.id },
      name: 'three',
      former: true,
      until: null,
      entity: { handle: 'three' },
    })
    const organization = await dataSource.getRepository(Organization).save({ handle: 'org' })
    await rename(manager, Organization, organization.id, { handle: 'org2' })
    expect(await findHolder(manager, 'handle', 'org', { former: true })).toBeNull()
    const seat = { hall: '1', row: 'a' }
    await dataSource.getRepository(Seat).save({ ...seat, handle: 'seat' })
    await rename(manager, Seat, seat, { handle: 'seat2' })
    const former = await findHolder(manager, 'handle', 'seat', { former: true })
    expect(former).toMatchObject({ name: 'seat2', former: true, id: seat, until: expect.any(Date) })
    expect(Number(former?.until)).toBeGreaterThan(Date.now() + 360 * 86_400_000)
    await dataSource.query(`UPDATE names SET until = now() - interval '1 minute' WHERE text = 'seat'`)
    expect(await findHolder(manager, 'handle', 'seat', { former: true })).toBeNull()
  })
})

describe('rename', () => {
  test('gives the row as it stands, and refuses a taken name with its holder, in a transaction that goes on', async () => {
    const user = await User.save({ handle: 'ada', nick: 'a' } as User)
    const organization = await dataSource.getRepository(Organization).save({ handle: 'org' })
    await User.save({ handle: 'other', nick: 'o' } as User)
    const renamed = await rename(manager, User, user.id, { handle: 'Grace' })
    expect(renamed).toBeInstanceOf(User)
    expect(renamed).toMatchObject({ id: user.id, handle: 'grace', nick: 'a', version: 2 })
    await dataSource.transaction(async (inside) => {
      const error = await rejection(rename(inside, User, user.id, { handle: 'ORG', nick: 'o' }))
      expect(error).toBeInstanceOf(TextTakenError)
      expect((error as TextTakenError).taken).toEqual([
        { entity: 'User', property: 'handle', id: { id: organization.id }, row: 0, holder: 'Organization' },
        { entity: 'User', property: 'nick', id: { id: 2 }, row: 0 },
      ])
      await rename(inside, User, user.id, { handle: 'free' })
    })
    expect(await User.findOneByOrFail({ handle: 'free' })).toMatchObject({ id: user.id, nick: 'a' })
  })

  test('that cannot be stored says which row of several has it', async () => {
    const users = [{ handle: 'fine' }, { handle: 'a\0' }]
    await expect(insertOrFail(manager, User, users)).rejects.toMatchObject({ row: 1 })
  })

  test('is for names, of a row that is there', async () => {
    await expect(rename(manager, User, 7, { handle: 'a' })).rejects.toThrow(EntityNotFoundError)
    await expect(rename(manager, User, 7, {})).rejects.toThrow('no name was given. User has "handle", "nick"')
    await expect(rename(manager, User, 7, { email: 'a' })).rejects.toThrow('"email" is not a name')
    await expect(rename(manager, Dog, 7, {})).rejects.toThrow('Dog has no names')
    await expect(rename(manager, User, 7, { handle: 'a\0' })).rejects.toThrow(TextRejectedError)
    const dog = await dataSource.getRepository(Dog).save({ tricks: 1 })
    await expect(rename(manager, Cat, dog.id, { handle: 'a' })).rejects.toThrow(EntityNotFoundError)
  })

  test('sets the date of the change', async () => {
    const { id } = await User.save({ handle: 'ada' } as User)
    await dataSource.query(`update "user" set "changedAt" = '2020-01-01'`)
    const { changedAt } = await rename(manager, User, id, { handle: 'grace' })
    expect(changedAt.getFullYear()).toBeGreaterThan(2020)
  })
})

describe('swapNames', () => {
  test('two rows swap their names in one statement, and neither is a former one', async () => {
    const [ada, grace] = await User.save([{ handle: 'ada' }, { handle: 'grace' }] as User[])
    const swapped = await swapNames(manager, User, grace as User, ada?.id ?? 0, { by: 'handle' })
    expect(swapped.map(({ id, handle, version }) => [id, handle, version])).toEqual([
      [2, 'ada', 2],
      [1, 'grace', 2],
    ])
    expect(await kept()).toEqual(['handle ada → user.handle [2]', 'handle grace → user.handle [1]'])
    const seats = dataSource.getRepository(Seat)
    await seats.save([
      { hall: '1', row: 'a', handle: 'x' },
      { hall: '1', row: 'b', handle: 'y' },
    ])
    const [first] = await swapNames(manager, Seat, { hall: '1', row: 'a' }, { hall: '1', row: 'b' })
    expect(first).toEqual({ hall: '1', row: 'a', handle: 'y' })
  })

  test('one row, a row that is not there, and one of another class are refused', async () => {
    const cat = await dataSource.getRepository(Cat).save({ handle: 'tom' })
    const dog = await dataSource.getRepository(Dog).save({ tricks: 1 })
    await expect(swapNames(manager, Cat, cat.id, String(cat.id) as never)).rejects.toThrow(
      'both ids are of one row of Cat',
    )
    await expect(swapNames(manager, Cat, cat.id, cat)).rejects.toThrow('both ids are of one row of Cat')
    await expect(swapNames(manager, Cat, cat.id, 99)).rejects.toThrow(EntityNotFoundError)
    await expect(swapNames(manager, Cat, cat.id, dog.id)).rejects.toThrow(EntityNotFoundError)
    await expect(swapNames(manager, User, 1, 2)).rejects.toThrow('declares several names')
    expect(await kept()).toEqual(['handle tom → animal.handle [1]'])
  })
})

describe('findOrCreateHolder', () => {
  test('finds the row of the entity that holds the name, or creates it', async () => {
    const values = { handle: 'Ada', nick: 'a' }
    const first = await findOrCreateHolder(manager, User, values, { by: 'handle' })
    expect(first).toMatchObject({ created: true, attempts: 1, entity: { id: 1, handle: 'ada' } })
    const again = await findOrCreateHolder(manager, User, { handle: 'ADA' }, { by: 'handle' })
    expect(again).toMatchObject({ created: false, attempts: 1, entity: { id: 1, handle: 'ada', nick: 'a' } })
    expect(again.entity).toBeInstanceOf(User)
    expect(await findOrCreateHolder(manager, Cat, { handle: 'Tom' })).toMatchObject({ created: true })
    expect((await findOrCreateHolder(manager, Cat, { handle: 'tom' })).entity).toBeInstanceOf(Cat)
  })

  test('a name of another entity, or one that is kept for another row, is refused', async () => {
    await dataSource.getRepository(Organization).save({ handle: 'org' })
    const error = await rejection(findOrCreateHolder(manager, Place, { handle: 'Org' }))
    expect(error).toMatchObject({ name: 'TextTakenError', taken: [{ entity: 'place', holder: 'Organization' }] })
    const place = await findOrCreateHolder(manager, Place, { handle: 'a' })
    await rename(manager, Place, place.entity.id, { handle: 'b' })
    const reserved = await rejection(findOrCreateHolder(manager, Place, { handle: 'a' }))
    expect(reserved).toMatchObject({ taken: [{ entity: 'place', id: { id: place.entity.id }, state: 'reserved' }] })
    await dataSource.transaction(async (inside) => {
      await expect(findOrCreateHolder(inside, Place, { handle: 'org' })).rejects.toThrow(TextTakenError)
      expect(await findOrCreateHolder(inside, Place, { handle: 'c' })).toMatchObject({ created: true })
    })
  })

  test('many calls at once create one row', async () => {
    const results = await Promise.all(
      Array.from({ length: 20 }, () => findOrCreateHolder(manager, Place, { handle: 'busy' })),
    )
    expect(results.filter(({ created }) => created)).toHaveLength(1)
    expect(new Set(results.map(({ entity }) => entity.id)).size).toBe(1)
  })
})

describe('insertOrFail and updateOrFail', () => {
  test('name every taken name and text of the call, with its row', async () => {
    await User.save([{ handle: 'a', email: 'a@x' }, { handle: 'b' }] as User[])
    const error = await rejection(
      insertOrFail(manager, User, [
        { handle: 'free' },
        { handle: 'A', email: 'a@x' },
        { handle: 'new' },
        { handle: 'b' },
        { handle: 'NEW' },
      ]),
    )
    expect((error as TextTakenError).taken.map((one) => [one.property, one.id, one.row, one.repeated])).toEqual([
      ['email', { id: 1 }, 1, undefined],
      ['handle', { id: 1 }, 1, undefined],
      ['handle', { id: 2 }, 3, undefined],
      ['handle', undefined, 4, true],
    ])
    expect(await User.count()).toBe(2)
  })

  test('name what is kept for ever and not what is free again, or has an equal hash', async () => {
    const [one, two] = STEVENS
    await User.save([{ handle: 'held', nick: one }] as User[])
    const organizations = dataSource.getRepository(Organization)
    const kept = await organizations.save({ handle: 'kept' })
    await rename(manager, Organization, kept.id, { handle: 'other' })
    await dataSource.getRepository(Place).save({ handle: 'over' })
    await dataSource.getRepository(Place).update({ handle: 'over' }, { handle: 'on' })
    await dataSource.query(`UPDATE names SET until = now() - interval '1 minute' WHERE text = 'over'`)
    const { id } = await dataSource.getRepository(Place).save({ handle: 'soon' })
    await rename(manager, Place, id, { handle: 'later' })
    const rows = [...['held', 'kept', 'over', 'soon'].map((handle) => ({ handle })), { handle: 'x', nick: two }]
    const error = await rejection(insertOrFail(manager, User, rows))
    expect((error as TextTakenError).taken.map(({ row, state, holder }) => [row, state, holder])).toEqual([
      [0, undefined, undefined],
      [1, 'reserved', 'Organization'],
      [3, 'reserved', 'place'],
    ])
  })

  test('do not name a text that is taken in another namespace only', async () => {
    await User.save([{ handle: 'a' }] as User[])
    const error = await rejection(insertOrFail(manager, User, [{ handle: 'a', nick: 'a' }]))
    expect((error as TextTakenError).taken.map(({ property }) => property)).toEqual(['handle'])
  })

  test('a name that an earlier change of the call gives up is free for a later one', async () => {
    const places = await dataSource.getRepository(Cat).save([{ handle: 'a' }, { handle: 'b' }])
    const [first, second] = places.map(({ id }) => id)
    await updateOrFail(manager, [
      [Cat, first ?? 0, { handle: 'c' }],
      [Cat, second ?? 0, { handle: 'a' }],
    ])
    expect(await kept()).toEqual(['handle a → animal.handle [2]', 'handle c → animal.handle [1]'])
  })
})

describe('releaseExpired', () => {
  async function expire(): Promise<void> {
    await dataSource.query(`UPDATE names SET until = now() - interval '1 minute' WHERE state <> 'held'`)
  }

  test('a name whose time is over is free at once, and removed in batches', async () => {
    const places = await dataSource.getRepository(Place).save(['a', 'b', 'c', 'd', 'e'].map((handle) => ({ handle })))
    for (const { id, handle } of places) await rename(manager, Place, id, { handle: `${handle}2` })
    await expect(User.insert({ handle: 'a' })).rejects.toThrow(TextTakenError)
    await expire()
    await User.insert({ handle: 'a' })
    expect(await findHolder(manager, 'handle', 'b', { former: true })).toBeNull()
    expect(await releaseExpired(manager, { batch: 3 })).toBe(4)
    expect(await releaseExpired(manager)).toBe(0)
    expect(await kept()).toHaveLength(6)
    await expect(releaseExpired(manager, { batch: 0 })).rejects.toThrow('batch must be a whole number above 0')
  })

  test('leaves a name that is held, whatever end was written to it', async () => {
    await User.save([{ handle: 'a' }] as User[])
    await dataSource.query(`UPDATE names SET until = now() - interval '1 minute'`)
    expect(await releaseExpired(manager)).toBe(0)
    expect(await kept()).toEqual(['handle a → user.handle [1]'])
  })
})

test('a table that has lost its triggers is found out on first use', async () => {
  const other = await db.dataSource(ENTITIES, { synchronize: false })
  await dataSource.query('ALTER TABLE place DISABLE TRIGGER unique_name_place_update')
  try {
    await expect(rename(other.manager, Place, 1, { handle: 'x' })).rejects.toThrow(SchemaDriftError)
    await expect(findHolder(other.manager, 'handle', 'x')).rejects.toThrow(
      'trigger "unique_name_place_update" is disabled',
    )
  } finally {
    await dataSource.query('ALTER TABLE place ENABLE TRIGGER unique_name_place_update')
  }
  await expect(rename(other.manager, Place, 1, { handle: 'x' })).rejects.toThrow(EntityNotFoundError)
})

test('a held name cannot be written directly, and a former one can be removed', async () => {
  const names = dataSource.getRepository(Name)
  const user = await User.save({ handle: 'ada' } as User)
  await rename(manager, User, user.id, { handle: 'grace' })
  await expect(names.delete({ text: 'grace' })).rejects.toThrow('cannot be written directly')
  await expect(names.update({ text: 'grace' }, { text: 'x' })).rejects.toThrow('cannot be written directly')
  await names.delete({ namespace: 'handle', text: 'ada' })
  expect(await kept()).toEqual(['handle grace → user.handle [1]'])
  expect(await names.findOneByOrFail({ namespace: 'handle' })).toBeInstanceOf(Name)
})

test('findOrCreate() by a name says which function finds by it', async () => {
  const hint = 'By "handle", which holds a name, findOrCreateHolder()'
  await expect(findOrCreate(manager, Organization, { handle: 'a' })).rejects.toThrow(hint)
})

test('findOrCreateHolder() refuses at once a name that a table outside of its DataSource holds', async () => {
  await User.save({ handle: 'ada' } as User)
  const other = await new DataSource({ type: 'postgres', url: db.url, entities: [Name, Organization] }).initialize()
  const error = await rejection(findOrCreateHolder(other.manager, Organization, { handle: 'ada' }))
  await other.destroy()
  expect(error).toBeInstanceOf(TextTakenError)
  expect((error as Error).message).toContain('held by another row')
})
