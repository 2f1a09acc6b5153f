import { BeforeInsert, BeforeUpdate, Column, Entity, ManyToOne, PrimaryGeneratedColumn } from 'typeorm'
import { beforeEach, describe, expect, test, vi } from 'vitest'
import { findOrCreate, findOrCreateMany, insertOrFail, UniqueText, upsertByText } from '../../../src'
import { useDatabase } from '../../support/database'
import { entity, text } from '../../support/entity'

const Owner = entity('Owner', { name: text() })
type Owner = InstanceType<typeof Owner>

abstract class Kept {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() text!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
  @ManyToOne(() => Owner, { nullable: true, lazy: true }) owner!: Promise<Owner | null>
}

@Entity()
class House extends Kept {}

@Entity()
class Heard extends Kept {
  @BeforeInsert() @BeforeUpdate() own(): void {
    if (this.title === 'owned') this.owner = Promise.resolve(owner)
  }
}

const db = useDatabase()
let owner: Owner
const dataSource = db.useDataSource([Owner, House, Heard])
const { manager } = dataSource

beforeEach(async () => {
  owner = await insertOrFail(manager, Owner, { name: 'o' })
})

const ownerOf = async (entity: typeof House | typeof Heard, text: string): Promise<Owner | null | undefined> =>
  await (
    await manager.findOneBy(entity, { text })
  )?.owner

describe.each([House, Heard])('of %o', (entity) => {
  test('one that nobody has set is not loaded, by whatever call', async () => {
    const load = vi.spyOn(dataSource.relationLoader, 'load')
    const created = (text: string): House => manager.create(entity, { text, title: 't' })
    await insertOrFail(manager, entity, [created('1'), { text: '2' }])
    await findOrCreate(manager, entity, created('3'))
    await findOrCreate(manager, entity, created('4'), { relations: 'findOrCreate' })
    await findOrCreateMany(manager, entity, [created('5'), created('6')])
    await upsertByText(manager, entity, created('6'))
    await upsertByText(manager, entity, [created('6'), created('7')])
    expect(load).not.toHaveBeenCalled()
    load.mockRestore()
  })

  test('one that was promised is stored', async () => {
    const values = (text: string): House => Object.assign(manager.create(entity, { text }), { owner: ownerAsPromise() })
    await insertOrFail(manager, entity, values('1'))
    await insertOrFail(manager, entity, { text: '2', owner: ownerAsPromise() })
    await findOrCreate(manager, entity, values('3'))
    for (const text of ['1', '2', '3']) expect(await ownerOf(entity, text)).toEqual(owner)
  })

  test('one that is null is taken away by an upsert', async () => {
    await insertOrFail(manager, entity, { text: '1', owner: ownerAsPromise() })
    await upsertByText(manager, entity, { text: '1', owner: Promise.resolve(null) })
    expect(await ownerOf(entity, '1')).toBeNull()
  })
})

const ownerAsPromise = (): Promise<Owner> => Promise.resolve(owner)

test('one that a listener promises is stored', async () => {
  await insertOrFail(manager, Heard, { text: '1', title: 'owned' })
  await findOrCreate(manager, Heard, { text: '2', title: 'owned' })
  await findOrCreate(manager, Heard, { text: '3' })
  await upsertByText(manager, Heard, { text: '3', title: 'owned' })
  for (const text of ['1', '2', '3']) expect(await ownerOf(Heard, text)).toEqual(owner)
})
