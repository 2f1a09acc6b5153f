import { Column, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { expect, test } from 'vitest'
import { UniqueText } from '../../src'
import { useDatabase } from '../support/database'

const db = useDatabase()

@Entity()
class Page {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() url!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
}

test('synchronize makes everything and finds nothing the second time', async () => {
  const ds = await db.dataSource([Page])
  const again = await ds.driver.createSchemaBuilder().log()
  expect(again.upQueries).toEqual([])
  const page = await ds.getRepository(Page).save({ url: 'x'.repeat(10), title: null })
  expect(page).toEqual({ id: 1, url: 'xxxxxxxxxx', title: null })
  console.log(await ds.query('select * from page'))
  await expect(ds.getRepository(Page).save({ url: 'x'.repeat(10) })).rejects.toMatchObject({
    driverError: { code: '23505' },
  })
})
